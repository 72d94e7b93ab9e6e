#include "cli/cli.hpp"
#include "support/schedules.hpp"

/// --tolerance and --certificate: a polynomial whose error is proved, or exact attention and why.
namespace redblue::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Inputs whose scores are small, for a memory in which keys and values do not fit, and the states of polynomials do.
struct Small : Workplace {
  Problem p = problem(200, 210, 3, 2);
  explicit Small(double size = 0.25) {
    Data x = generate(p);
    for (double& e : x.q) e *= size;
    for (double& e : x.k) e *= size;
    safetensors("x.safetensors", p, x);
  }
  Args run_of(const Args& more) const {
    return Args{"run", "--M", "450", "--input", *this / "x.safetensors", "--output", *this / "y.safetensors"} + more;
  }
};

const Args kPlan = "plan --n 512 --d 8"_args;

TEST(Tolerance, TakesTheLeastDegreeAndCertifiesIt) {
  const Small w;
  index_t before = 0;
  for (const char* tolerance : {"0.3", "1e-2", "1e-4", "1e-6"}) {
    const Finished f = w.run(w.run_of(
        {"--tolerance", tolerance, "--certificate", w / "c.json", "--compute-dtype", "f64", "--json", "--verify"}));
    ASSERT_EQ(f.exit_code, 0) << f.err << f.out;
    const auto report = f.json();
    EXPECT_EQ(report["schedule"], "polynomial");
    EXPECT_EQ(report["tolerance"]["method"], "polynomial");
    EXPECT_GT(report["tolerance"]["degree"], before);
    EXPECT_GT(report["tolerance"]["proved_of_numbers"], report["certificate"]["output_error"]);
    before = report["tolerance"]["degree"];
    EXPECT_LE(report["certificate"]["output_error"], std::stod(tolerance));
    const auto& measured = report["certificate"]["verify"];
    EXPECT_TRUE(measured["ok"]);
    EXPECT_GT(measured["measured"], 0);
    EXPECT_LE(measured["measured"].get<double>(),
              measured["proved"].get<double>() + measured["rounding"].get<double>());
    EXPECT_TRUE(w.files().contains("c.json"));
  }
}

TEST(Tolerance, SaysInWordsWhatIsProvedAndMeasured) {
  const Small w;
  const Finished f = w.run(w.run_of({"--tolerance", "1e-2", "--verify"}));
  ASSERT_EQ(f.exit_code, 0) << f.err << f.out;
  EXPECT_THAT(f.out, AllOf(HasSubstr("is the least that proves 0.01 max|V| for scores up to"),
                           HasSubstr("roundings add at most"), HasSubstr("verify certificate: measured")));
}

/// Queries of which a few are long, and keys that point one way: no polynomial serves all rows.
struct Uneven : Workplace {
  Problem p = problem(200, 210, 3, 2);
  Uneven() {
    Data x = generate(p);
    for (std::size_t e = 0; e < x.q.size(); ++e) x.q[e] *= e / 3 % 10 == 0 ? 40 : 0.5;
    for (double& e : x.k) e = 0.5 * e + 1;
    safetensors("x.safetensors", p, x);
  }
  Args run_of(const Args& more) const {
    return Args{"run",
                "--M",
                "140",
                "--input",
                *this / "x.safetensors",
                "--output",
                *this / "y.safetensors",
                "--compute-dtype",
                "f64"} +
           more;
  }
};

/// What a run reports whose rows have polynomials of their own: fewer words than exact attention, an error within 1e-2.
Json report_by_rows(const Finished& f, const char* schedule) {
  EXPECT_EQ(f.exit_code, 0) << f.err << f.out;
  const Json report = f.json();
  EXPECT_EQ(report["schedule"], schedule);
  EXPECT_LT(report["tolerance"]["row_words"], report["tolerance"]["exact_words"]);
  EXPECT_LE(report["certificate"]["output_error"], 1e-2);
  EXPECT_TRUE(report["certificate"]["verify"]["ok"]);
  return report;
}

TEST(Tolerance, TakesAPolynomialForEachRow) {
  const Uneven w;
  const Args asked{"--tolerance", "1e-2", "--certificate", w / "c.json"};
  const Finished f = w.run(w.run_of(asked + "--json --verify"_args));
  const Json report = report_by_rows(f, "polynomial_rows"), &certificate = report["certificate"];
  EXPECT_EQ(report["tolerance"]["method"], "polynomial rows");
  EXPECT_EQ(report["tolerance"]["row_words"], report["moved"]["io"]);
  EXPECT_EQ(certificate["method"], "polynomial rows");
  EXPECT_EQ(certificate["per_head"][0]["exact_rows"], report["decisions"]["worst"]);
  EXPECT_GT(report["decisions"]["worst"], 0);
  const Finished text = w.run(w.run_of(asked + "--verify"_args));
  EXPECT_THAT(text.out, AllOf(HasSubstr("a polynomial of degree"), HasSubstr("exact attention for"),
                              HasSubstr("no polynomial of degree 12 or less proves it for all of them"),
                              HasSubstr("rows exact at most, of the others each weight within")));
  // How far o is from exact attention stands there once.
  const std::size_t distance = text.out.find("max|V| from exact attention");
  EXPECT_NE(distance, std::string::npos);
  EXPECT_EQ(text.out.find("max|V| from exact attention", distance + 1), std::string::npos);
}

/// Under a causal mask the first rows see short keys only: fewer rows may be exact, and fewer words move, than is said.
TEST(Tolerance, TakesAPolynomialForEachRowUnderACausalMask) {
  const Uneven w;
  const Finished f =
      w.run(w.run_of({"--causal", "--tolerance", "1e-2", "--certificate", w / "c.json", "--json", "--verify"}));
  const Json report = report_by_rows(f, "polynomial_rows");
  EXPECT_LE(report["moved"]["io"], report["tolerance"]["row_words"]);
  EXPECT_LE(report["decisions"]["worst"], report["certificate"]["per_head"][0]["exact_rows"]);
  EXPECT_GT(report["decisions"]["worst"], 0);
}

/// Of 400 keys, 27 are long: no polynomial serves them, and beside the state of the others they do not fit.
TEST(Tolerance, TakesExactKeysThatDoNotFit) {
  const Workplace w;
  const Problem p = problem(400, 400, 3, 2);
  Data x = generate(p);
  for (double& e : x.q) e *= 0.5;
  for (std::size_t e = 0; e < x.k.size(); ++e) x.k[e] *= e / 3 % 15 == 7 ? 40 : 0.5;
  w.safetensors("x.safetensors", p, x);
  const Finished f =
      w.run({"run", "--M", "180", "--input", w / "x.safetensors", "--output", w / "y.safetensors", "--compute-dtype",
             "f64", "--tolerance", "1e-2", "--certificate", w / "c.json", "--json", "--verify"});
  const Json report = report_by_rows(f, "polynomial_pairs");
  EXPECT_EQ(report["certificate"]["rows"]["exact_keys"], 32);
  EXPECT_EQ(report["tolerance"]["row_words"], report["moved"]["io"]);
}

TEST(Tolerance, GoesWithAScheduleByName) {
  const Small w;
  const auto run = [&](const std::string& name, const char* tolerance) {
    return w.run(w.run_of({"--tolerance", tolerance, "--schedule", name}));
  };
  const Finished polynomial = run("polynomial", "1e-2");
  EXPECT_EQ(polynomial.exit_code, 0) << polynomial.err;
  EXPECT_THAT(polynomial.out, HasSubstr("degree 2 is the least that proves"));
  const Finished flash = run("flash", "1e-2");
  EXPECT_EQ(flash.exit_code, 0) << flash.err;
  EXPECT_THAT(flash.out, HasSubstr("exact attention: the polynomial of degree 2, the least that proves"));
  const Finished neither = run("polynomial", "1e-17");
  EXPECT_EQ(neither.exit_code, 2);
  EXPECT_THAT(neither.err, AllOf(HasSubstr("no polynomial of degree 12 or less proves 1e-17"),
                                 HasSubstr("exact attention does not run here")));
  const Uneven rows;
  const Finished by_rows = rows.run(rows.run_of({"--tolerance", "1e-2", "--schedule", "polynomial_rows"}));
  EXPECT_EQ(by_rows.exit_code, 0) << by_rows.err;
  EXPECT_THAT(by_rows.out, HasSubstr("a polynomial of degree"));
  const Finished plan = w.run(kPlan + "--M 1000 --tolerance 0.1 --range 1 --schedule polynomial"_args);
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
}

TEST(Tolerance, SaysWhereRoundingsMayExceedIt) {
  const Small w;
  const auto run = [&](const char* type) {
    return w.run(w.run_of({"--tolerance", "1e-5", "--compute-dtype", type})).out;
  };
  EXPECT_THAT(run("f32"), HasSubstr("roundings in f32 may add more than it"));
  EXPECT_THAT(run("f64"), Not(HasSubstr("may add more than it")));
}

TEST(Tolerance, SaysThatNothingIsProvedBeyondTheRange) {
  const Small w(20);
  const Finished f = w.run(w.run_of({"--approximate", "2:1", "--certificate", w / "c.json"}));
  ASSERT_EQ(f.exit_code, 0) << f.err << f.out;
  EXPECT_THAT(f.out, HasSubstr("certificate: nothing is proved: scores may reach"));
}

/// Values that are all the same: no spread moves, but the weights may add up to nothing.
TEST(Tolerance, SaysThatNothingIsProvedOfEqualValues) {
  const Workplace w;
  const Problem p = problem(1, 2, 1, 1);
  w.safetensors("x.safetensors", p, {{1}, {-1.3819767068693265, -0.7819767068693265}, {3, 3}});
  const Finished f = w.run({"run", "--M", "100", "--input", w / "x.safetensors", "--output", w / "y.safetensors",
                            "--scale", "1", "--approximate", "1:0.5", "--certificate", w / "c.json", "--verify"});
  EXPECT_THAT(f.out, AllOf(HasSubstr("certificate: nothing is proved"), HasSubstr("nothing is proved of it"),
                           Not(HasSubstr("proved 0"))));
}

/// Monomials overflow where queries are long and keys are short.
TEST(Tolerance, SaysThatTheOutputIsNotFinite) {
  const Workplace w;
  const Problem p = problem(3, 4, 2, 2);
  Data x = generate(p);
  for (double& e : x.q) e *= 1e12;
  for (double& e : x.k) e *= 1e-12;
  w.safetensors("x.safetensors", p, x);
  const Finished f = w.run({"run", "--M", "1000", "--input", w / "x.safetensors", "--output", w / "y.safetensors",
                            "--approximate", "4:2", "--certificate", w / "c.json", "--verify"});
  EXPECT_EQ(f.exit_code, 1) << f.out;
  EXPECT_THAT(f.out, HasSubstr("verify certificate: o has entries that are no finite numbers: WRONG"));
}

TEST(Tolerance, SaysWhyAttentionIsExact) {
  const Workplace w;
  const auto plan = [&](const Args& more) {
    const Finished f = w.run(kPlan + more);
    EXPECT_EQ(f.exit_code, 0) << f.err;
    return f.out;
  };
  EXPECT_THAT(plan("--M 1000 --tolerance 1e-6 --range 1"_args),
              AllOf(HasSubstr("exact attention is cheaper: it moves"),
                    HasSubstr("the polynomial of degree 7, the least"), HasSubstr("does not fit in fast memory")));
  EXPECT_THAT(plan("--M 1000000 --tolerance 1e-2 --range 1"_args),
              AllOf(HasSubstr("exact attention is as cheap"), HasSubstr("neither moves a word more than once")));
  EXPECT_THAT(plan("--M 1000 --tolerance 1e-2 --range 50"_args),
              AllOf(HasSubstr("no polynomial of degree 12 or less proves"), HasSubstr("for scores up to 50"),
                    HasSubstr("degree 12 would for scores up to 8.")));
  EXPECT_THAT(plan("--M 1000 --tolerance 1e-18 --range 1"_args), HasSubstr("not precise enough"));
  EXPECT_THAT(plan("--M 1000 --tolerance 1e-2 --range 1 --window 9,0"_args),
              AllOf(HasSubstr("does not run here"), HasSubstr("needs every query to see keys from the first on")));
  EXPECT_THAT(plan("--M 1000 --tolerance 1e-2 --range 1 --softcap 9"_args),
              AllOf(HasSubstr("does not run here"), HasSubstr("softcap")));
  const Finished f = w.run(kPlan + "--M 1000 --tolerance 0.1 --range 1 --json"_args);
  EXPECT_EQ(f.json()["tolerance"]["method"], "polynomial");
  EXPECT_EQ(f.json()["tolerance"]["degree"], 2);
}

TEST(Tolerance, RefusesWhatCannotBeProved) {
  const Small w;
  const auto before = w.files();
  const auto expect_refused = [&](const Args& args, const std::string& text) {
    const Finished f = w.run(args);
    EXPECT_EQ(f.exit_code, 2) << f.out;
    EXPECT_THAT(f.err, HasSubstr(text));
    EXPECT_EQ(f.out, "");
    EXPECT_EQ(w.files(), before) << "a file was left behind";
  };
  for (const char* wrong : {"0", "-1", "nan", "1", "inf", "2.5"}) {
    expect_refused(w.run_of({"--tolerance", wrong}), "give a number above 0 and below 1, as in 1e-3");
    expect_refused(kPlan + Args{"--M", "1000", "--range", "1", "--tolerance", wrong}, "above 0 and below 1");
  }
  expect_refused(w.run_of({"--tolerance", "0"}), "attention without --tolerance is exact");
  expect_refused(w.run_of({"--tolerance", "0.1", "--approximate", "2:1"}), "--tolerance finds the degree");
  expect_refused(w.run_of({"--certificate", w / "c.json"}), "--certificate is for --tolerance or --approximate");
  expect_refused(w.run_of({"--tolerance", "0.1", "--certificate", w / "x.safetensors"}), "choose another file");
  expect_refused(w.run_of({"--tolerance", "0.1", "--certificate", w / "y.safetensors"}), "choose another file");
  expect_refused(w.run_of({"--tolerance", "0.1", "--certificate", w / "no/c.json"}), "no/c.json");
  expect_refused(w.run_of({"--tolerance", "0.1", "--op", "backward"}), "for --op forward");
  expect_refused(w.run_of({"--tolerance", "0.1", "--compute-dtype", "bf16"}), "f32 or f64");
  expect_refused(kPlan + "--M 1000 --tolerance 0.1"_args, "--tolerance and --range: give both");
  expect_refused(kPlan + "--M 1000 --tolerance 0.1 --range -1"_args, "--range -1");
  expect_refused(kPlan + "--M 1000 --tolerance 0.1 --range nan"_args, "--range nan");
}

TEST(Tolerance, RefusesNumbersThatAreNone) {
  const Workplace w;
  const Problem p = problem(4, 5, 3, 2);
  Data x = generate(p);
  x.k[7] = std::numeric_limits<double>::infinity();
  w.safetensors("x.safetensors", p, x);
  const Finished f = w.run(
      {"run", "--M", "1000", "--input", w / "x.safetensors", "--output", w / "y.safetensors", "--tolerance", "0.1"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, AllOf(HasSubstr("k has an entry inf in row 2"), HasSubstr("attention without --tolerance")));
  EXPECT_EQ(w.files(), (std::set<std::string>{"x.safetensors"}));
}

}  // namespace
}  // namespace redblue::test
