#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.hpp"
#include "redblue/planner/planner.hpp"
#include "support/paths.hpp"
#include "support/schedules.hpp"

/// Bad input ends with exit code 2, a message that names the culprit and what would work, and no file that was not
/// there.
namespace redblue::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Problem small() { return problem(5, 7, 4, 3); }

/// A workplace with good inputs, as .npy and as safetensors.
struct Stocked : Workplace {
  Stocked() {
    inputs(small(), generate(small()), 2);
    safetensors("x.safetensors", small(), generate(small()));
  }
};

TEST(Cli, RefusesLengthsThatDoNotAddUp) {
  const Workplace w;
  const auto plan = [](const Args& more) { return "plan --d 8 --M 1000"_args + more; };
  expect_refused(
      w, {plan("--n 8 --seqlens 3,3"_args), {"cu_seqlens_q ends with 6", "8 queries", "the program's --seqlens)"}});
  expect_refused(w, {plan("--nq 6 --nk 8 --seqlens 3,3"_args), {"ends with 6", "8 keys", "--seqlens-k"}});
  expect_refused(w, {plan("--n 8 --seqlens 0,3,8"_args), {"ends with 11", "these lengths look cumulative"}});
}

TEST(Cli, RefusesDirectionsWithoutWhatMoves) {
  const Workplace w;
  const Args run = "run --op second --q q.npy --k k.npy --v v.npy --do do.npy --gq q.npy --gk k.npy --gv v.npy"_args;
  expect_refused(w, {run + "--gbias g.npy --lbias l.npy"_args, {"--gbias g.npy goes with --bias"}});
  expect_refused(w, {run + "--bias b.npy --lbias l.npy"_args, {"--lbias l.npy goes with --gbias"}});
  expect_refused(w, {"plan --op second --n 4 --d 3 --M 99 --bias 1,1,4,4 --bias-gradient"_args,
                     {"operation second", "bias_direction"}});
}

TEST(Cli, RefusesSizesThatAreNone) {
  const Workplace w;
  const auto plan = [](const Args& more) { return "plan --M 1000"_args + more; };
  for (const Bad& bad : {
           Bad{plan("--n 0 --d 8"_args), {"n_q = 0", "from 1 to 2^48"}},
           Bad{plan("--n -4 --d 8"_args), {"n_q = -4"}},
           Bad{plan("--n 4 --d 8 --dv -1"_args), {"d_v = -1"}},
           Bad{plan("--n 4 --d 8 --batch 0"_args), {"--batch 0 is not a size"}},
           Bad{plan("--n 4 --d 8 --heads 0"_args), {"--heads 0 is not a size"}},
           Bad{plan("--n 4 --d 8 --heads 4 --kv-heads 3"_args), {"heads = 4", "kv_heads = 3"}},
           Bad{plan("--n 9999999999999999 --d 8"_args), {"n_q = 9999999999999999"}},
           Bad{plan("--n 281474976710656 --d 281474976710656 --heads 281474976710656 --kv-heads 1"_args),
               {"too large", "281474976710656"}},
           Bad{plan("--n 281474976710656 --d 281474976710656 --batch 281474976710656"_args), {"overflow"}},
           Bad{plan("--n 4 --d 8 --causal --causal-offset 999999999999999"_args), {"causal_offset = 999999999999999"}},
           Bad{plan("--d 8"_args), {"queries", "--n"}},
           Bad{plan("--nq 8 --d 8"_args), {"keys", "--nk"}},
           Bad{plan("--n 8"_args), {"--d"}},
           Bad{plan("--n eight --d 8"_args), {"--n", "eight"}},
           Bad{plan("--n 1e6 --d 8"_args), {"--n", "1e6"}},
           Bad{plan("--n 99999999999999999999999 --d 8"_args), {"--n", "99999999999999999999999"}},
       })
    expect_refused(w, bad);
}

TEST(Cli, RefusesOptionsThatMakeNoSense) {
  const Workplace w;
  const auto plan = [](const Args& more) { return "plan --n 100 --d 8 --M 1000"_args + more; };
  for (const Bad& bad : {
           Bad{{}, {"a command is missing"}},
           Bad{"explode"_args, {"explode"}},
           Bad{plan("--explode"_args), {"--explode"}},
           Bad{plan("--op sideways"_args), {"--op sideways", "forward", "gradient-x"}},
           Bad{plan("--score max"_args), {"--score max", "sigmoid"}},
           Bad{plan("--sources self"_args), {"sources = self", "forward"}},
           Bad{plan("--op gradient-x --kv-heads 2 --heads 4"_args), {"kv_heads = 2"}},
           Bad{plan("--op backward-w"_args), {"d_in"}},
           Bad{plan("--op backward --schedule flash"_args), {"'flash'", "two_pass"}},
           Bad{plan("--schedule fast"_args), {"'fast'", "flash_pinned", "score_tiles"}},
           Bad{plan("--dtype f8"_args), {"--dtype f8", "bf16"}},
           Bad{plan("--reserve -2"_args), {"--reserve -2: give 0 or more"}},
           Bad{plan("--multiple q=0"_args), {"--multiple", "q=0"}},
           Bad{plan("--multiple x=4"_args), {"--multiple", "x=4", "q, k, f"}},
           Bad{plan("--multiple 16"_args), {"--multiple", "'16'"}},
           Bad{plan("--multiple q=4,"_args), {"--multiple", "q=4,"}},
           Bad{plan("--multiple q=4,q=8"_args), {"--multiple", "q is given twice"}},
           Bad{plan("--reserve 010"_args), {"--reserve", "010"}},
           Bad{plan("--width Q=0"_args), {"--width", "Q=0"}},
           Bad{plan("--width P=2"_args), {"--width", "P=2", "lse"}},
           Bad{plan("--write-cost -1"_args), {"--write-cost -1: give a number"}},
           Bad{plan("--write-cost nan"_args), {"--write-cost nan: give a number from 0 to 1000000"}},
           Bad{plan("--causal --schedule saha_ye"_args), {"saha_ye", "mask"}},
           Bad{plan("--window 5"_args), {"--window 5", "512,0"}},
           Bad{plan("--window a,b"_args), {"--window a,b", "LEFT,RIGHT"}},
           Bad{plan("--window -2,0"_args), {"--window -2,0", "-1 for no edge"}},
           Bad{plan("--window 3,0,1"_args), {"--window 3,0,1"}},
           Bad{plan("--window 99999999999999999999,0"_args), {"--window 99999999999999999999,0"}},
           Bad{plan("--window 300000000000000,0"_args), {"window_left = 300000000000000", "0 to 2^48"}},
           Bad{plan("--prefix 3"_args), {"--prefix 3", "--causal"}},
           Bad{plan("--prefix 101 --causal"_args), {"prefix = 101", "n_k = 100"}},
           Bad{plan("--prefix 3 --window 4,-1"_args), {"prefix = 3", "window_right"}},
           Bad{plan("--causal --causal-offset middle"_args), {"--causal-offset middle", "top-left"}},
           Bad{plan("--causal-offset 3"_args), {"--causal-offset 3", "--causal"}},
           Bad{"plan --n 100 --d 8 --dv 1 --M 1000 --schedule column_split"_args, {"column_split", "no tiling"}},
           Bad{plan("--no-workspace --schedule naive"_args), {"naive", "workspace"}},
           Bad{"trace --n 100 --d 8 --M 1000 --most -1"_args, {"--most"}},
           Bad{"trace --n 4 --d 2 --M 50 --most 0"_args, {"--most", "0: give a number above 0"}},
       })
    expect_refused(w, bad);
}

TEST(Cli, RefusesOptionsThatWouldNotCount) {
  const Workplace w;
  const auto plan = [](const Args& more) { return "plan --n 100 --d 8 --M 200"_args + more; };
  for (const Bad& bad : {
           Bad{plan("--d-in 8"_args), {"d_in (--d-in) is for operation backward-w, not for operation forward"}},
           Bad{plan("--with-forward"_args),
               {"(--with-forward) is for operation backward, gradient-x", "not for operation forward"}},
           Bad{plan("--op backward --lse"_args),
               {"(--lse) is for operation forward, forward-x, merge, not for operation backward"}},
           Bad{plan("--causal-offset 3"_args), {"--causal-offset 3", "--causal"}},
           Bad{plan("--partial --causal"_args), {"--causal-offset", "give a number"}},
           Bad{plan("--partial --causal --causal-offset top-left"_args), {"--causal-offset", "give a number"}},
           Bad{plan("--partial --op backward --alibi"_args), {"--causal-offset", "give a number"}},
           Bad{plan("--partial --strided 4"_args), {"--causal-offset", "give a number"}},
           Bad{plan("--op merge --nk 7"_args), {"n_k = 7"}},
           Bad{plan("--op merge --dv 4"_args), {"--dv 4", "--d gives the features of o"}},
           Bad{plan("--op merge --heads 4 --kv-heads 2"_args), {"kv_heads = 2"}},
           Bad{plan("--op merge --with-forward"_args), {"(--with-forward) is for operation backward"}},
           Bad{"bound --op merge --n 100 --d 8 --M 200 --nonzeros 1,1,1,1"_args, {"--nonzeros 1,1,1,1", "merge"}},
           Bad{plan("--objective time --write-cost 2"_args), {"--write-cost 2", "--objective words"}},
       })
    expect_refused(w, bad);
}

TEST(Cli, NeedsNoHomeDirectory) {
  const Workplace w;
  const Args plan = "plan --n 100 --d 8 --M 200"_args;
  // A loop of links can be searched by nobody, whoever runs the tests.
  const std::string loop = "ln -s loop loop && HOME=\"$PWD/loop\" XDG_CONFIG_HOME=";
  for (const std::string& home : {std::string("HOME= XDG_CONFIG_HOME="), loop}) {
    const Finished f = w.run(plan, home);
    EXPECT_EQ(f.exit_code, 0) << f.err;
  }
}

TEST(Cli, RefusesMemoryThatMakesNoSense) {
  const Workplace w;
  const auto plan = [](const Args& more) { return "plan --n 100 --d 8"_args + more; };
  for (const Bad& bad : {
           Bad{plan("--M 100 --memory 64KiB"_args), {"--M", "--memory"}},
           Bad{plan("--M 0"_args), {"M = 0"}},
           Bad{plan("--M -7"_args), {"M = -7"}},
           Bad{plan("--M 64KiB"_args), {"--M", "64KiB"}},
           Bad{plan("--memory 64XB"_args), {"--memory 64XB", "1.5MiB"}},
           Bad{plan("--memory -64KiB"_args), {"--memory -64KiB"}},
           Bad{plan("--memory 0"_args), {"--memory 0"}},
           Bad{plan("--memory 1e300"_args), {"--memory 1e300"}},
           Bad{plan("--memory nan"_args), {"--memory nan"}},
           Bad{plan("--memory 3"_args), {"fast memory of 3 bytes holds no word of 4"}},
           Bad{plan("--M 99999999999999999999"_args), {"--M", "99999999999999999999", "64 bits"}},
           Bad{plan("--M 0x10"_args), {"--M", "0x10"}},
           Bad{"bound --n 8 --d 8 --M 0"_args, {"M = 0"}},
           Bad{plan("--M 64 --accumulate f32"_args), {"--accumulate f32 is for --memory"}},
           Bad{plan("--M 64 --pad rows=4"_args), {"--pad rows=4 is for --memory"}},
           Bad{plan("--M 64 --width scores=2"_args), {"--width", "scores=2", "lse"}},
           Bad{"bound --n 8 --d 8 --M 9 --pad rows=4"_args, {"--pad rows=4 is for --memory"}},
           Bad{plan("--memory 64KiB --accumulate f31"_args), {"--accumulate f31", "did you mean f32?"}},
           Bad{plan("--memory 64KiB --pad cols=4"_args), {"--pad", "cols=4", "rows"}},
           Bad{plan("--memory 64KiB --pad rows=0"_args), {"--pad", "rows=0", "at least 1"}},
           Bad{plan("--memory 64KiB --pad rows=5000"_args), {"--pad rows=5000", "4096"}},
           Bad{plan("--memory 64KiB --width scores=65"_args), {"--width scores=65", "64"}},
           Bad{plan("--memory 50 --dtype bf16 --schedule flash"_args), {"50 bytes", "smallest that works"}},
       })
    expect_refused(w, bad);
}

TEST(Cli, TooSmallMListsTheSmallestOfEverySchedule) {
  const Workplace w;
  for (const char* command : {"plan", "count", "trace"}) {
    Bad bad{{command, "--n", "100", "--d", "8", "--M", "2"},
            {"M = 2 words is too small", "the smallest that works is 3"}};
    for (const std::string_view name : softmax_schedules()) bad.says.push_back(std::string(name) + ": needs M >= ");
    expect_refused(w, bad);
  }
  const Stocked s;
  expect_refused(s, {"run --M 2"_args + kNpyFiles, {"M = 2 words is too small", "flash: needs M >= "}});
  expect_refused(
      s, {"run --M 10 --schedule flash"_args + kNpyFiles, {"M = 10 words is too small", "flash: needs M >= 11"}});
}

TEST(Cli, RefusesIncompleteOrMixedFiles) {
  const Stocked w;
  const Args run = "run --M 100"_args;
  for (const Bad& bad : {
           Bad{run, {"files are missing"}},
           Bad{run + "--input x.safetensors"_args, {"--output"}},
           Bad{run + "--output y.safetensors"_args, {"--input"}},
           Bad{run + "--q q.npy --k k.npy --o o.npy"_args, {"--v"}},
           Bad{run + "--q q.npy --k k.npy --v v.npy"_args, {"--o"}},
           Bad{run + kSafetensorsFiles + "--q q.npy"_args, {"not both"}},
           Bad{run + kSafetensorsFiles + "--name q"_args, {"--name q"}},
           Bad{run + kSafetensorsFiles + "--name x=q"_args, {"--name x=q", "lse"}},
           Bad{run + kSafetensorsFiles + "--name q=q --name q=k"_args, {"--name q=k", "already"}},
           Bad{run + kNpyFiles + "--name q=q"_args, {"--name q=q", ".npy"}},
           Bad{run + kSafetensorsFiles + "--name q=nowhere"_args, {"nowhere", "it has k, q, v"}},
           Bad{run + kSafetensorsFiles + "--name o=same --name lse=same"_args, {"same"}},
           Bad{run + kNpyFiles + "--compute-dtype f16"_args, {"compute type f16", "f32, f64, or bf16"}},
           Bad{run + kNpyFiles + "--compute-dtype bf16 --verify"_args, {"--verify", "bf16", "f32"}},
           Bad{run + kNpyFiles + "--compute-dtype int"_args, {"--compute-dtype int"}},
           Bad{run + kNpyFiles + "--scale nan"_args, {"scale = nan"}},
           Bad{run + kNpyFiles + "--scale big"_args, {"--scale", "big"}},
           Bad{run + kNpyFiles + "--width Q=2"_args, {"--width"}},
           Bad{run + kNpyFiles + "--op backward"_args, {"files are missing", "--dq"}},
           Bad{run + kNpyFiles + "--dq dq.npy"_args, {"--dq dq.npy", "forward"}},
           Bad{run + kSafetensorsFiles + "--op backward"_args, {"do", "it has k, q, v"}},
           Bad{run + kSafetensorsFiles + "--op gradient-x"_args, {"a1", "it has k, q, v"}},
           Bad{"run --M 100 --input absent.safetensors --output y.safetensors"_args, {"absent.safetensors"}},
           Bad{"run --M 100 --input q.npy --output y.safetensors"_args,
               {"--input q.npy", "safetensors", "--q --k --v"}},
           Bad{"run --M 100 --input qkv.safetensors --output y.npy"_args, {"--output y.npy", "--o --lse"}},
           Bad{"run --M 100 --q q.npy --k k.npy --v v.npy --lse l.npy"_args,
               {"files are missing: --o; --op forward writes o, and lse where"}},
           Bad{{"run", "--M", "100", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", ""}, {"--o is empty"}},
           Bad{{"run", "--M", "100", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", std::string(300, 'o')},
               {"at most 255 bytes"}},
           Bad{run + kNpyFiles + "--quiet --json"_args, {"--quiet and --json"}},
           Bad{run + kNpyFiles + "--causal-offset 1"_args, {"--causal-offset 1", "--causal"}},
       })
    expect_refused(w, bad);
}

TEST(Cli, RefusesShapesThatDisagree) {
  const struct {
    std::vector<index_t> q, k, v;
    std::vector<std::string> says;
  } cases[] = {
      {{5, 4}, {7, 5}, {7, 3}, {"k is [1, 1, 7, 5]", "q [1, 1, 5, 4]", "must be [1, 1, 7, 4]"}},
      {{5, 4}, {7, 4}, {6, 3}, {"v is [1, 1, 6, 3]", "must be [1, 1, 7, 3]"}},
      {{2, 5, 4}, {1, 7, 4}, {2, 7, 3}, {"v is [1, 2, 7, 3]", "must be [1, 1, 7, 3]"}},
      {{3, 5, 4}, {2, 7, 4}, {2, 7, 3}, {"heads = 3", "kv_heads = 2"}},
      {{1, 1, 5, 4}, {2, 1, 7, 4}, {2, 1, 7, 3}, {"k is [2, 1, 7, 4]", "q [1, 1, 5, 4]", "must be [1, 1, 7, 4]"}},
      {{1, 1, 5, 4}, {1, 1, 7, 4}, {2, 1, 7, 3}, {"v is [2, 1, 7, 3]", "must be [1, 1, 7, 3]"}},
      {{5, 4}, {7, 4}, {1, 7, 3}, {"q [5, 4]", "v [1, 7, 3]", "dimensions"}},
      {{0, 4}, {7, 4}, {7, 3}, {"q is [0, 4]", "at least 1"}},
      {{5, 4}, {7, 4}, {7, 0}, {"v is [7, 0]", "at least 1"}},
      {{4}, {4}, {4}, {"q [4] has 1 dimensions", "[n, d]"}},
      {{1, 1, 1, 5, 4},
       {1, 1, 1, 7, 4},
       {1, 1, 1, 7, 3},
       {"q [1, 1, 1, 5, 4] has 5 dimensions", "[batch, heads, n, d]"}},
  };
  for (const auto& c : cases) {
    const Workplace w;
    w.zeros("q.npy", c.q);
    w.zeros("k.npy", c.k);
    w.zeros("v.npy", c.v);
    expect_refused(w, {"run --M 100"_args + kNpyFiles, c.says});
  }
}

TEST(Cli, RefusesBrokenFiles) {
  const struct {
    const char *file, *what;
    std::string (*spoil)(std::string);
  } cases[] = {
      {"k.npy", "k.npy", [](std::string s) { return s.substr(0, s.size() - 3); }},
      {"k.npy", "k.npy", [](std::string s) { return s.substr(0, 5); }},
      {"k.npy", "k.npy", [](std::string) { return std::string(); }},
      {"k.npy", "k.npy", [](std::string) { return std::string("no numbers here"); }},
      {"k.npy", "i4", [](std::string s) { return s.replace(s.find("<f4"), 3, "<i4"); }},
      {"x.safetensors", "x.safetensors", [](std::string s) { return s.substr(0, s.size() - 1); }},
      {"x.safetensors", "x.safetensors", [](std::string s) { return s.substr(0, 20); }},
      {"x.safetensors", "x.safetensors", [](std::string s) { return s.replace(0, 8, 8, '\xff'); }},
      {"x.safetensors", "x.safetensors", [](std::string) { return std::string(); }},
      {"x.safetensors", "I32", [](std::string s) { return s.replace(s.find("F32"), 3, "I32"); }},
  };
  for (const auto& c : cases) {
    const Stocked w;
    file::write_text(w / c.file, c.spoil(file::read_text(w / c.file)));
    expect_refused(w,
                   {"run --M 100"_args + (c.file == std::string("k.npy") ? kNpyFiles : kSafetensorsFiles), {c.what}});
  }
}

TEST(Cli, RefusesOutputThatIsAlsoInput) {
  const Stocked w;
  const std::string before = file::read_text(w / "q.npy");
  std::filesystem::create_symlink("q.npy", w / "soft.npy");
  std::filesystem::create_hard_link(w / "k.npy", w / "hard.npy");
  std::filesystem::create_directory(w / "sub");
  const auto with_o = [](const std::string& o) {
    return Args{"run", "--M", "100", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", o};
  };
  for (const char* o : {"q.npy", "./v.npy", "sub/../k.npy", "soft.npy", "hard.npy"})
    expect_refused(w, {with_o(o), {o, "also an input"}});
  expect_refused(w, {with_o(w / "q.npy"), {"also an input"}});
  expect_refused(w, {with_o("o.npy") + "--lse v.npy"_args, {"v.npy", "also an input"}});
  expect_refused(w, {with_o("o.npy") + "--lse sub/../o.npy"_args, {"--o and --lse"}});
  expect_refused(w, {{"run", "--M", "100", "--input", "x.safetensors", "--output", "x.safetensors"},
                     {"x.safetensors", "also an input"}});
  EXPECT_EQ(file::read_text(w / "q.npy"), before);
}

TEST(Cli, RefusesPlacesThatCannotBeWritten) {
  const Stocked w;
  std::filesystem::create_directory(w / "sub");
  const auto with_o = [](const std::string& o) {
    return Args{"run", "--M", "100", "--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "--o", o};
  };
  for (const char* o : {"no/such/place/o.npy", "q.npy/o.npy", "/proc/o.npy", "sub", "sub/", "/dev/full", ""})
    expect_refused(w, {with_o(o), {o}});
  // The second output is as good a reason as the first, and the first does not stay behind.
  expect_refused(w, {with_o("o.npy") + "--lse no/such/place/lse.npy"_args, {"no/such/place"}});
  if (geteuid() == 0) return;  // root writes where it likes
  chmod((w / "sub").c_str(), 0555);
  expect_refused(w, {with_o("sub/o.npy"), {"sub/o.npy"}});
}

TEST(Cli, KeepsTheOldOutputWhenTheDiskIsFull) {
  const Problem p = problem(200, 200, 16, 16);
  const Workplace w;
  w.inputs(p, generate(p), 2);
  w.safetensors("x.safetensors", p, generate(p));
  file::write_text(w / "o.npy", "old");
  file::write_text(w / "y.safetensors", "old");
  // No file may grow beyond 8 blocks of 512 bytes; the outputs are larger.
  for (const Args& files : {kNpyFiles, kSafetensorsFiles})
    expect_refused(w, {"run --M 1000"_args + files, {files[0] == "--q" ? "o.npy" : "y.safetensors"}}, "ulimit -f 8;");
  EXPECT_EQ(file::read_text(w / "o.npy"), "old");
  EXPECT_EQ(file::read_text(w / "y.safetensors"), "old");
}

TEST(Cli, NoticesAFullDiskBeforeItPlans) {
  const Problem p = problem(200, 200, 16, 16);
  const Workplace w;
  w.inputs(p, generate(p), 2);
  w.safetensors("x.safetensors", p, generate(p));
  // No schedule fits in one word: a run that gets as far as its plan says that.
  for (const Args& files : {kNpyFiles, kSafetensorsFiles}) {
    const std::string output = files[0] == "--q" ? "o.npy" : "y.safetensors";
    expect_refused(w, {"run --M 1"_args + files, {"cannot reserve", output}}, "ulimit -f 8;");
    expect_refused(w, {"run --M 1"_args + files, {"M = 1 words is too small"}});
  }
}

TEST(Cli, SaysSoWhenItsAnswerCannotBeWritten) {
  // Results on standard output are results too, and so is help.
  const Workplace w;
  const auto answer = [&](const std::string& arguments, const std::string& out) {
    return std::system(
        (quoted(redblue::test::program()) + " " + arguments + " >" + out + " 2>" + quoted(w / "err")).c_str());
  };
  std::vector<std::string> lines = {"--version", "--help"};
  for (const char* command : {"plan", "bound", "count", "trace"})
    lines.push_back(command + std::string(" --n 100 --d 8 --M 1000"));
  for (const char* command : {"plan", "bound", "count", "trace", "run", "bench", "regimes", "compare", "doctor"})
    lines.push_back(command + std::string(" --help"));
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    const int status = answer(line, "/dev/full");
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 2);
    EXPECT_THAT(file::read_text(w / "err"), HasSubstr("cannot write to standard output: No space left on device"));
    EXPECT_EQ(answer(line, "/dev/null"), 0);
  }
}

TEST(Cli, KeepsItsFilesWhenTheReportCannotBeWritten) {
  const Workplace w;
  const Problem p = problem(5, 5, 3, 3);
  w.safetensors("x.safetensors", p, generate(p));
  const auto answer = [&](const std::string& arguments, const std::string& redirection) {
    const int status =
        std::system(("cd " + quoted(w / "") + " && " + quoted(redblue::test::program()) +
                     " run --M 100 --input x.safetensors --output y.safetensors" + arguments + redirection + " 2>err")
                        .c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const auto output = [&] { return file::read_safetensors(w / "y.safetensors").names(); };
  for (const std::string form : {"", " --json", " --verify"}) {
    SCOPED_TRACE(form);
    EXPECT_EQ(answer(form, " >/dev/full"), 3);
    EXPECT_THAT(file::read_text(w / "err"), HasSubstr("the files are written, but not the report to standard output"));
    EXPECT_EQ(output().size(), 2u);
    std::filesystem::remove(w / "y.safetensors");

    EXPECT_EQ(answer(form, " >&-"), 2);
    EXPECT_THAT(file::read_text(w / "err"), HasSubstr("standard output is closed: open it, or give --quiet"));
    EXPECT_FALSE(std::filesystem::exists(w / "y.safetensors"));
  }
  // A report that is longer than a buffer, and notes that standard error does not take.
  EXPECT_EQ(answer(" --json --verify --name o=" + std::string(5000, 'o'), " >/dev/full"), 3);
  EXPECT_EQ(std::system(("REDBLUE_PROGRESS_SECONDS=0.0001 " + quoted(redblue::test::program()) +
                         " count --n 5000 --d 64 --M 1000 --schedule flash >/dev/null 2>/dev/full")
                            .c_str()),
            0);
  const int nest = std::system(
      (quoted(redblue::test::program()) + " explain --n 100 --d 8 --M 1000 >/dev/full 2>/dev/null").c_str());
  EXPECT_EQ(WIFEXITED(nest) ? WEXITSTATUS(nest) : -1, 2);
  // Whatever is closed, no report ends up in a file.
  for (const std::string closed : {" >&-", " <&- >&-", " <&- >/dev/null", " >/dev/full"}) {
    SCOPED_TRACE(closed);
    EXPECT_EQ(answer(" --quiet", closed), 0);
    EXPECT_EQ(output().size(), 2u);
  }
}

TEST(Cli, SaysInOneLineWhatIsWrongWithACommandLine) {
  const Workplace w;
  const Args plan = "plan --n 64 --d 8 --M 512"_args;
  const std::vector<std::pair<Args, std::string>> wrong = {
      {{}, "a command is missing: choose from plan, "},
      {{"frob", "--x"}, "frob is no command: choose from plan, "},
      {plan + "count"_args, "count is a second command"},
      {plan + "--n 3"_args, "--n is given more than once"},
      {plan + "--bogus 3"_args, "--bogus 3 does not go with redblue plan (redblue plan --help"},
      {plan + "--n-k 3"_args, "--n-k 3 does not go with redblue plan: did you mean --nk?"},
      {plan + "--kv_heads 3"_args, "--kv_heads 3 does not go with redblue plan: did you mean --kv-heads?"},
      {plan + "--objectve=time"_args, "--objectve=time does not go with redblue plan: did you mean --objective?"},
      {plan + "--write-cost x"_args, "--write-cost x: give a number"},
      {plan + Args{"--write-cost", ""}, "--write-cost is empty"},
      {plan + Args{"--schedule", ""}, "--schedule is empty"},
      {plan + "--format yaml"_args, "--format yaml: choose from table, json, csv"},
      {plan + "--width Q=9223372036854775807"_args, "a word takes 1 to 64 bytes"},
      {plan + "--reserve 511"_args, "M = 512 words is too small; the smallest that works is 514: "},
      {plan + "--nq 3 --nk 5"_args, "--n 64 beside --nq 3 and --nk 5"},
      {{"plan", "--n", "4"}, "--d is missing"},
      {{"plan", "--d"}, "--d needs a value"},
      {{"run", "--scale", ""}, "--scale is empty"},
      {{"doctor", "--quiet", "--json"}, "--quiet and --json"},
  };
  for (const auto& [args, part] : wrong) {
    const Finished f = w.run(args);
    SCOPED_TRACE(f.err);
    EXPECT_EQ(f.exit_code, 2);
    EXPECT_EQ(f.out, "");
    EXPECT_THAT(f.err, testing::StartsWith("redblue: "));
    EXPECT_THAT(f.err, HasSubstr(part));
    EXPECT_EQ(std::count(f.err.begin(), f.err.end(), '\n'), 1);
  }
  EXPECT_EQ(w.files(), std::set<std::string>());
}

}  // namespace
}  // namespace redblue::test
