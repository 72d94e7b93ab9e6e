#include <cmath>

#include "cli/cli.hpp"
#include "redblue/planner/planner.hpp"
#include "support/schedules.hpp"

/// plan, bound, count, trace: the words they print and the JSON they promise.
namespace redblue::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

const Args kSmall = "--n 100 --d 8 --M 200"_args;

const std::set<std::string> kProblem = {"op",  "batch", "heads", "kv_heads", "n_q",
                                        "n_k", "d",     "d_v",   "causal",   "scale"};
const std::set<std::string> kBound = {"words", "theorem", "class", "status", "condition", "holds"};
const std::set<std::string> kCounts = {"reads", "writes", "io", "peak", "flops", "per_array"};

TEST(Cli, PlanPrintsItsSchema) {
  const Finished f = Workplace().run("plan --op forward --n 4096 --d 64 --M 16384 --json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_EQ(f.err, "");
  const Json j = f.json();
  EXPECT_EQ(j["schema"], "redblue.plan/1");
  expect_fields(j, {"problem", "M", "bound", "bounds", "plans", "refused", "chosen", "reason"});
  expect_fields(j["problem"], kProblem);
  expect_fields(j["bound"], kBound);
  EXPECT_EQ(j["M"], 16384);
  EXPECT_EQ(j["bound"]["words"], 16760832);
  EXPECT_EQ(j["bound"]["theorem"], "F'");
  std::set<std::string> schedules;
  for (const Json& row : j["plans"]) {
    expect_fields(
        row, {"schedule", "tiling", "reads", "writes", "io", "footprint", "workspace", "flops", "ratio", "stable"});
    EXPECT_EQ(row["io"], row["reads"].get<std::int64_t>() + row["writes"].get<std::int64_t>());
    EXPECT_LE(row["footprint"], 16384);
    schedules.insert(row["schedule"]);
  }
  for (const std::string_view name : softmax_schedules()) EXPECT_TRUE(schedules.contains(std::string(name))) << name;
  const Json& best = j["plans"][j["chosen"].get<std::size_t>()];
  EXPECT_EQ(best["schedule"], "flash");
  EXPECT_EQ(best["io"], 17829888);
}

TEST(Cli, PlanPrintsATable) {
  const Finished f = Workplace().run("plan --n 4096 --d 64 --M 16384"_args);
  EXPECT_EQ(f.exit_code, 0);
  EXPECT_THAT(f.out, AllOf(HasSubstr("* flash"), HasSubstr("17829888"), HasSubstr("16760832"), HasSubstr("1.064")));
}

TEST(Cli, PlanTakesEveryOption) {
  const Finished f = Workplace().run(
      "plan --nq 60 --nk 90 --d 16 --dv 24 --heads 6 --kv-heads 2 --batch 3 --M 3000 --reserve "
      "2 --double-buffer --multiple q=16,k=8,f=4 --width Q=2,K=1,V=1 --write-cost 2.5 "
      "--no-workspace --lse --dtype bf16 --json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const Json j = f.json();
  const Json& p = j["problem"];
  EXPECT_EQ(p["batch"], 3);
  EXPECT_EQ(p["heads"], 6);
  EXPECT_EQ(p["kv_heads"], 2);
  EXPECT_EQ(p["n_q"], 60);
  EXPECT_EQ(p["n_k"], 90);
  EXPECT_EQ(p["d"], 16);
  EXPECT_EQ(p["d_v"], 24);
  EXPECT_EQ(p["lse_required"], true);
  for (const Json& row : j["plans"]) {
    EXPECT_LE(row["workspace"], 180 * 24);  // no scores; O of an instance, where it is read again
    EXPECT_LE(row["footprint"].get<int>() + row["prefetch"].get<int>() + 2, 3000);
    expect_fields(row, {"bytes"});
    EXPECT_EQ(row["tiling"].value("Br", 16) % 16, 0);
  }
  for (const Json& r : j["refused"]) expect_fields(r, {"schedule", "why", "smallest_M"});
}

TEST(Cli, PlanKnowsCausalOffsets) {
  const Workplace w;
  const auto offset = [&](const Args& more) {
    return w.run("plan --nq 50 --nk 80 --d 8 --M 500 --json"_args + more).json()["problem"];
  };
  EXPECT_FALSE(offset({}).contains("causal_offset"));
  EXPECT_EQ(offset("--causal"_args)["causal_offset"], 30);
  EXPECT_EQ(offset("--causal --causal-offset 0"_args)["causal_offset"], 0);
  EXPECT_EQ(offset("--causal --causal-offset -7"_args)["causal_offset"], -7);
  EXPECT_EQ(offset("--causal --causal-offset -7"_args)["causal"], true);
}

TEST(Cli, NumbersBeyond64BitsAreExact) {
  const Finished f = Workplace().run("plan --n 1099511627776 --d 64 --M 16384 --json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  // n^2 words of scores and more: 2^80 = 1208925819614629174706176, digit by digit in the text.
  EXPECT_THAT(f.out, HasSubstr("\"workspace\": 1208925819614629174706176"));
}

TEST(Cli, BoundPrintsItsSchema) {
  const Finished f = Workplace().run("bound --n 4096 --d 64 --M 16384 --json"_args);
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const Json j = f.json();
  EXPECT_EQ(j["schema"], "redblue.bound/1");
  expect_fields(j["problem"], kProblem);
  EXPECT_EQ(j["bound"]["words"], 16760832);
  ASSERT_EQ(j["bounds"].size(), 4U);
  for (const Json& b : j["bounds"]) expect_fields(b, kBound);
  const Finished text = Workplace().run("bound --n 4096 --d 64 --M 16384"_args);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("* F'"), HasSubstr("16760832"), HasSubstr("proved")));
}

TEST(Cli, CountPrintsItsSchema) {
  const Workplace w;
  const Json j = w.run("count --json"_args + kSmall).json();
  EXPECT_EQ(j["schema"], "redblue.count/1");
  expect_fields(j, {"problem", "M", "schedule", "tiling", "counted", "formula", "equal", "bound", "ratio"});
  expect_fields(j["counted"], kCounts);
  const Finished text = w.run("count"_args + kSmall);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("counted = formula"));
}

TEST(Cli, PlanFormatsHoldTheForwardPassThatComesFirst) {
  const Workplace w;
  const auto in = [&](const char* format) {
    return w
        .run(
            {"plan", "--op", "backward", "--n", "100", "--d", "8", "--M", "1000", "--with-forward", "--format", format})
        .out;
  };
  EXPECT_THAT(in("c-header"),
              AllOf(HasSubstr("#define REDBLUE_FORWARD_SCHEDULE"), HasSubstr("#define REDBLUE_BACKWARD_SCHEDULE")));
  EXPECT_THAT(in("csv"), testing::ContainsRegex("\nforward,[^\n]*\nbackward,"));
  EXPECT_THAT(in("markdown"), HasSubstr("for o and lse"));
}

/// It has arrays that the gradients have not, and they take bytes, too.
TEST(Cli, PlansInBytesHoldTheForwardPassThatComesFirst) {
  const Workplace w;
  for (const Args& bytes : {"--memory 8KiB"_args, "--memory 8KiB --width dQ=8"_args, "--M 1000 --width dQ=8"_args,
                            "--M 1000 --dtype bf16"_args}) {
    const Args gradients = "plan --op backward --n 100 --d 8 --with-forward --json"_args;
    const Finished f = w.run(gradients + bytes);
    ASSERT_EQ(f.exit_code, 0) << f.err;
    const Json forward = f.json()["forward"];
    EXPECT_GT(forward["plans"][0]["bytes"].get<index_t>(), 0);
  }
}

TEST(Cli, ExplainPrintsTheLoopNest) {
  const Workplace w;
  const Args scratchpad =
      "--n 2048 --d 128 --heads 32 --kv-heads 8 --causal --dtype bf16 --memory 64KiB --multiple "
      "q=16,k=16 --schedule flash"_args;
  const Finished f = w.run("explain"_args + scratchpad);
  EXPECT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, AllOf(HasSubstr("flash Br=64 Bc=16"), HasSubstr("load q = Q[64 j : +64, :] (64 x 128)"),
                           HasSubstr("for l from 0 on, 1 + j rounds:"), HasSubstr("K[16 l : +16, :]")));
  const Finished ragged =
      w.run("explain --op backward --nq 11 --nk 9 --d 3 --dv 5 --M 65 --schedule fused_query_outer"_args);
  EXPECT_THAT(ragged.out, HasSubstr("load q = Q[8 - 4 j : +4, :] (first 3 x 3, then 4 x 3)"));
  EXPECT_THAT(w.run("explain --n 10 --d 3 --M 60 --schedule flash_pinned"_args).out,
              HasSubstr("compute scores(s, q, k[l, :])"));
  const Json counted = w.run("count --json"_args + scratchpad).json();
  const std::string words = std::to_string(counted["counted"]["io"].get<index_t>());
  for (const char* line : {"sum of these lines", "formula and footprint"})
    EXPECT_THAT(f.out, testing::ContainsRegex(std::string("\n") + line + " +" + words));

  const Args gradients = "explain --op backward --n 100 --d 8 --M 1000 --with-forward"_args;
  EXPECT_THAT(w.run(gradients).out, AllOf(HasSubstr("store lse["), HasSubstr("store dQ[")));
  const Json j = w.run(gradients + "--json"_args).json();
  EXPECT_EQ(j["schema"], "redblue.explain/1");
  EXPECT_EQ(j["lines"][0]["kind"], "loop");
  EXPECT_EQ(j["forward"][0]["kind"], "loop");
}

TEST(Cli, LongWorkSaysSoWhereThereIsNoTerminal) {
  const Workplace w;
  const Args count = "count --n 2000 --d 64 --M 1000 --schedule flash"_args;
  const Finished often = w.run(count, "export REDBLUE_PROGRESS_SECONDS=0.0005;");
  EXPECT_EQ(often.exit_code, 0);
  EXPECT_THAT(often.err, testing::StartsWith("redblue: counting "));
  EXPECT_THAT(often.err, testing::ContainsRegex(" words for [0-9]+ s so far\n"));
  EXPECT_EQ(w.run("count --n 60 --d 64 --M 1000"_args).err, "");

  const Problem p = problem(500, 500, 32, 32);
  w.safetensors("x.safetensors", p, generate(p));
  const Args run = "run --M 1000 --input x.safetensors --output y.safetensors"_args;
  EXPECT_THAT(w.run(run, "export REDBLUE_PROGRESS_SECONDS=0.0001;").err, testing::ContainsRegex(" % after [0-9]+ s"));
  EXPECT_EQ(w.run(run).err, "");

  const Finished bad = w.run(count, "export REDBLUE_PROGRESS_SECONDS=soon;");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("REDBLUE_PROGRESS_SECONDS=soon: give a number of seconds above 0"));
}

TEST(Cli, TraceListsEveryOperation) {
  const Workplace w;
  const Args args = "trace --n 3 --d 2 --M 24 --schedule flash"_args;
  const Finished text = w.run(args), json = w.run(args + "--json"_args);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, testing::StartsWith("# redblue.trace/2\n"));
  const Json j = json.json();
  EXPECT_EQ(j["schema"], "redblue.trace/2");
  expect_fields(j, {"problem", "M", "schedule", "tiling", "operations"});
  std::string lines = "# redblue.trace/2\n";
  for (const Json& line : j["operations"]) lines += line.get<std::string>() + "\n";
  EXPECT_EQ(text.out, lines);
  EXPECT_THAT(text.out, AllOf(HasSubstr("read t0"), HasSubstr("write O#0"), HasSubstr("write lse#0")));
}

TEST(Cli, TraceStopsAtItsLimit) {
  const Finished f = Workplace().run("trace --n 20 --d 4 --M 40 --most 11"_args);
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("more than 11 operations"));
  EXPECT_EQ(f.out, "");
}

TEST(Cli, MemoryIsTakenInBytesAndUnits) {
  const Workplace w;
  const struct {
    const char *memory, *dtype;
    int words;
  } cases[] = {{"65536", "f32", 16384},   {"65536B", "f32", 16384},  {"64KiB", "f32", 16384},
               {"64KiB", "f64", 8192},    {"64KiB", "bf16", 32768},  {"64KB", "f32", 16000},
               {"1.5MiB", "f32", 393216}, {"0.001GB", "f16", 500000}};
  for (const auto& c : cases) {
    const Finished f = w.run({"plan", "--n", "64", "--d", "8", "--memory", c.memory, "--dtype", c.dtype, "--json"});
    ASSERT_EQ(f.exit_code, 0) << f.err;
    EXPECT_EQ(f.json()["M"], c.words) << c.memory << " of " << c.dtype;
  }
  const Args half = "--n 16 --d 8 --dtype bf16 --memory 64KiB --json"_args;
  for (const char* compute : {"bf16", "f32", "f64"})
    for (const char* command : {"plan", "bound", "count", "trace"}) {
      const Finished f = w.run(Args{command} + half + Args{"--compute-dtype", compute});
      EXPECT_EQ(f.exit_code, 0) << f.err;
      EXPECT_EQ(f.json()["M"], 32768) << command << " in " << compute;
    }
}

TEST(Cli, PlansInFormatsToPaste) {
  const Workplace w;
  const Args problem = "plan --n 8192 --d 128 --dtype bf16 --memory 64KiB --multiple q=16,k=16"_args;
  const auto in = [&](const std::string& format) { return w.run(problem + Args{"--format", format}); };
  const Json json = in("json").json(), chosen = json["plans"][0];
  EXPECT_EQ(json["chosen"], 0);
  const std::string header = in("c-header").out, csv = in("csv").out, markdown = in("markdown").out;
  for (const auto& [name, value] : chosen["tiling"].items()) {
    std::string macro = name;
    std::transform(macro.begin(), macro.end(), macro.begin(), [](unsigned char c) { return std::toupper(c); });
    EXPECT_THAT(header, HasSubstr("#define REDBLUE_FORWARD_" + macro + " " + value.dump() + "\n"));
    EXPECT_THAT(csv, HasSubstr(name + "=" + value.dump()));
  }
  EXPECT_THAT(header,
              HasSubstr("#define REDBLUE_FORWARD_FOOTPRINT_BYTES " + chosen["footprint_bytes"].dump() + "LL\n"));
  EXPECT_THAT(header, HasSubstr("#define REDBLUE_FORWARD_WORDS_READ " + chosen["reads"].dump() + "LL\n"));
  EXPECT_THAT(header, HasSubstr("#elif REDBLUE_FORWARD_WORDS_READ != " + chosen["reads"].dump() + "LL || "));
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')), json["plans"].size() + 1);
  EXPECT_THAT(markdown, HasSubstr("| **" + chosen["schedule"].get<std::string>() + "** |"));
  EXPECT_THAT(in("table").out, AllOf(HasSubstr("for comparison:\n  saha_ye"), HasSubstr("* ")));
  EXPECT_EQ(w.run(problem + "--json --format csv"_args).exit_code, 2);
  EXPECT_EQ(in("xml").exit_code, 2);
}

/// A header says which keys a query sees, also where that is no one interval for each query.
TEST(Cli, HeadersHoldTheMask) {
  const Workplace w;
  const auto header = [&](const Args& mask, const char* n = "64") {
    const Finished f = w.run(Args{"plan", "--n", n, "--d", "8", "--M", "800", "--format", "c-header"} + mask);
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return f.out;
  };
  const auto says = [](const std::string& name, int value) {
    return HasSubstr("#define REDBLUE_FORWARD_" + name + " " + std::to_string(value) + "\n");
  };
  EXPECT_THAT(header({}), AllOf(says("CAUSAL", 0), Not(HasSubstr("MASK")), Not(HasSubstr("WINDOW"))));
  EXPECT_THAT(header("--causal --window 8,2"_args),
              AllOf(says("CAUSAL", 1), says("CAUSAL_OFFSET", 0), says("MASK_LO", -8), says("MASK_HI", 1),
                    HasSubstr("i + MASK_LO <= j < i + MASK_HI")));
  EXPECT_THAT(header("--causal --seqlens 30,34"_args),
              AllOf(says("SEQUENCES", 2), says("CAUSAL", 1), Not(HasSubstr("define REDBLUE_FORWARD_CAUSAL_OFFSET")),
                    HasSubstr("in each sequence query i stands at key i + its keys - its queries")));
  EXPECT_THAT(header("--window 5,1 --causal-offset 2 --prefix 3 --seqlens 30,34"_args),
              AllOf(says("CAUSAL", 0), says("CAUSAL_OFFSET", 2), says("WINDOW_LEFT", 5), says("WINDOW_RIGHT", 1),
                    says("PREFIX", 3)));
  EXPECT_THAT(header("--causal --window 8,0 --dilation 4"_args),
              AllOf(says("PATTERNS", 1), says("CAUSAL", 1), HasSubstr("the keys that its pattern has")));
  EXPECT_THAT(header("--causal --window 512,0 --dilation 4"_args, "1048576"),
              AllOf(says("CAUSAL", 1), says("WINDOW_LEFT", 512), says("WINDOW_RIGHT", 0), says("DILATION", 4),
                    HasSubstr("in steps of DILATION keys"), Not(HasSubstr("PATTERNS"))));
}

/// A pattern from a file has index words, apart from all other words; one that a rule describes has none.
TEST(Cli, PlansStateIndexWords) {
  const Workplace w;
  // Queries 0 to 3 see keys 0 and 5, 1 and 4, 0 and 4, all: bits of a row, from key 0.
  const std::array<unsigned, 4> rows{0b100001, 0b010010, 0b010001, 0b111111};
  std::vector<std::uint8_t> seen;
  for (const unsigned row : rows)
    for (unsigned j = 0; j < 6; ++j) seen.push_back(row >> j & 1);
  file::write_npy(w / "mask.npy", file::c_order_tensor(DType::boolean, {4, 6}, seen.data()));
  const Args sizes = "--nq 4 --nk 6 --d 3 --M 200 --order natural"_args;
  const Args of_mask = "plan --mask mask.npy"_args + sizes, of_rule = "plan --strided 2"_args + sizes;
  const Json with_mask = w.run(of_mask + "--json"_args).json();
  for (const Json& row : with_mask["plans"]) EXPECT_GT(row["index_words"], row["index_footprint"]) << row;
  const Json flash = w.run(of_mask + "--schedule flash --json"_args).json()["plans"][0];
  EXPECT_EQ(flash["index_words"], 1 + 2 * 6 + 12);  // one block: keys, and pairs
  EXPECT_EQ(flash["index_footprint"], 3);           // queries 0, 2 and 3 see key 0
  const auto in = [&](const Args& problem, const std::string& format) {
    return w.run(problem + Args{"--schedule", "flash", "--format", format}).out;
  };
  EXPECT_THAT(in(of_mask, "table"), testing::ContainsRegex("index words +read +resident\n\\* flash +25 +3\n"));
  EXPECT_THAT(in(of_mask, "csv"),
              AllOf(HasSubstr("may_be_chosen,index_words,index_footprint\n"), HasSubstr(",25,3\n")));
  EXPECT_THAT(in(of_mask, "markdown"), AllOf(HasSubstr("| index words | resident |\n"), HasSubstr(" | 25 | 3 |\n")));
  EXPECT_THAT(in(of_mask, "c-header"),
              AllOf(HasSubstr("_INDEX_WORDS_READ 25LL\n"), HasSubstr("_INDEX_WORDS_RESIDENT 3LL\n")));
  const Json with_rule = w.run(of_rule + "--json"_args).json();
  for (const Json& row : with_rule["plans"]) EXPECT_TRUE(row["index_words"] == 0 && row["index_footprint"] == 0) << row;
  for (const char* format : {"table", "csv", "markdown", "c-header"}) {
    EXPECT_THAT(in(of_rule, format), testing::Not(testing::HasSubstr("index")));
    EXPECT_THAT(in(of_rule, format), testing::Not(testing::HasSubstr("INDEX")));
  }
}

TEST(Cli, CountsFastMemoryInBytes) {
  const Workplace w;
  const Args scratchpad =
      "--n 700 --d 40 --dtype bf16 --memory 16KiB --width scores=2 --pad rows=64,after=4 --json"_args;
  for (const char* op : {"forward", "backward", "gradient-x"}) {
    const Args problem = Args{"--op", op} + scratchpad;
    const Finished plan = w.run("plan"_args + problem), count = w.run("count"_args + problem);
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    ASSERT_EQ(count.exit_code, 0) << count.err;
    const Json chosen = plan.json()["plans"][plan.json()["chosen"].get<std::size_t>()], counted = count.json();
    EXPECT_LE(chosen["footprint_bytes"], 16384);
    EXPECT_EQ(counted["footprint_in"], "bytes");
    EXPECT_EQ(counted["counted"]["peak"], chosen["footprint_bytes"]);
    EXPECT_EQ(counted["counted"]["io"], chosen["io"]);
    EXPECT_TRUE(counted["equal"]);
  }
  const Finished table = w.run("plan --n 64 --d 8 --memory 4KiB --dtype bf16"_args);
  EXPECT_THAT(table.out, testing::HasSubstr("2 per word of Q K V; 4 per word of O lse"));
  EXPECT_THAT(table.out, testing::HasSubstr("bytes moved by"));
}

TEST(Cli, HelpsAndSaysItsVersion) {
  const Workplace w;
  const Finished help = w.run({"--help"}), version = w.run({"--version"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+\n"));
  for (const char* command : {"plan", "bound", "count", "run", "trace", "bench"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    const Finished f = w.run({command, "--help"});
    EXPECT_EQ(f.exit_code, 0) << command;
    EXPECT_THAT(f.out, AllOf(HasSubstr("Example"), HasSubstr(std::string("redblue ") + command))) << command;
  }
}

}  // namespace
}  // namespace redblue::test
