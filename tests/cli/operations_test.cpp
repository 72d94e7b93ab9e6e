#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "cli/cli.hpp"
#include "redblue/planner/planner.hpp"
#include "runtime/arrays.hpp"
#include "support/cases.hpp"
#include "support/schedules.hpp"

/// Attention, gradients, and attention of A1 X, A2, A3 Y, by the program: files in, files out, words and bounds in
/// JSON.
namespace redblue::test {
namespace {

using enum SlowArray;
using testing::AllOf;
using testing::HasSubstr;

constexpr Operation kGradients[] = {Operation::backward, Operation::gradient_x, Operation::backward_x,
                                    Operation::backward_w};
constexpr Operation kNew[] = {Operation::forward_x, Operation::backward, Operation::gradient_x, Operation::backward_x,
                              Operation::backward_w};
constexpr Operation kAll[] = {Operation::forward,    Operation::forward_x,  Operation::backward,
                              Operation::gradient_x, Operation::backward_x, Operation::backward_w};

Problem sample(Operation op, index_t batch = 2, index_t heads = 4) {
  Problem p = problem(9, 11, 6, 5);
  p.op = op;
  p.batch = batch;
  p.heads = heads;
  if (!is_projected(op)) p.kv_heads = heads > 1 ? heads / 2 : heads;
  if (op == Operation::backward_w) p.d_in = 7;
  if (is_projected(op)) p.scale = 0.1;
  p.lse_required = is_forward(op);
  return p;
}
std::string op_name(Operation op) { return std::string(name_of(op)); }
std::vector<index_t> vector_of(const std::array<index_t, 4>& x) { return {x.begin(), x.end()}; }

/// C = A B for every head.
std::vector<double> product(const std::vector<double>& A, const std::vector<double>& B,
                            const std::array<index_t, 4>& a_shape, const std::array<index_t, 4>& b_shape) {
  const auto [batch, heads, rows, inner] = a_shape;
  const index_t cols = b_shape[3];
  std::vector<double> C;
  for (index_t h = 0; h < batch * heads; ++h)
    for (index_t i = 0; i < rows; ++i)
      for (index_t j = 0; j < cols; ++j) {
        double sum = 0;
        for (index_t k = 0; k < inner; ++k)
          sum += A[static_cast<std::size_t>((h * rows + i) * inner + k)] *
                 B[static_cast<std::size_t>((h * inner + k) * cols + j)];
        C.push_back(sum);
      }
  return C;
}

/// The inputs of a problem in files, and in memory to ask the library about.
struct Stock : Workplace {
  Problem p;
  DType dtype;
  std::map<SlowArray, Array> arrays;

  explicit Stock(const Problem& problem, DType type = DType::f32) : p(problem), dtype(type) {
    std::mt19937_64 random(7);
    Problem rest = p;
    rest.forward_given = false;
    for (const SlowArray a : inputs_of(rest)) {
      const auto s = shape_of(p, a);
      add(a).set(normal(s[0] * s[1] * s[2] * s[3], random));
    }
    if (follows_forward(p.op) && p.score == Score::softmax) forward();
  }
  Array& add(SlowArray a) {
    // lse is stored in fp32 at least.
    const DType type = a == lse && size_of(dtype) < 4 ? DType::f32 : dtype;
    return arrays.emplace(a, Array(type, shape_of(p, a), Strides::bhsd)).first->second;
  }
  /// O and lse, by plain attention on Q, K, V.
  void forward() {
    Problem f = p;
    f.op = Operation::forward;
    f.scale = p.scale_or_default();
    f.lse_required = true;
    f.sources = Sources::distinct;
    f.d_in = 0;
    const auto value = [&](SlowArray plain, SlowArray source, SlowArray x, SlowArray w) {
      if (!is_projected(p.op)) return arrays.at(plain).get();
      if (p.sources != Sources::distinct && source == A3) source = A2;
      if (p.sources == Sources::self && source == A2) source = A1;
      if (p.op != Operation::backward_w && plain == K) return arrays.at(source).get();
      const SlowArray weight = p.op == Operation::backward_w ? w : x;
      return product(arrays.at(source).get(), arrays.at(weight).get(), shape_of(p, source), shape_of(p, weight));
    };
    std::map<SlowArray, Array> x;
    Tensors tensors;
    for (const SlowArray a : {Q, K, V, O, lse}) {
      Array& array = x.emplace(a, Array(DType::f64, shape_of(f, a), Strides::bhsd)).first->second;
      if (a == Q) array.set(value(Q, A1, X, WQ));
      if (a == K) array.set(value(K, A2, X, WK));
      if (a == V) array.set(value(V, A3, Y, WV));
      tensors[a] = array.tensor();
    }
    plan::Options options;
    options.M = 1000;
    RunOptions doubles;
    doubles.compute = DType::f64;
    redblue::run(plan::make_plan(f, options), tensors, doubles);
    for (const SlowArray a : {O, lse}) add(a).set(x.at(a).get());
  }
  void nudge(SlowArray a, double by) {
    std::vector<double> x = arrays.at(a).get();
    x[1] += by;
    arrays.at(a).set(x);
  }

  /// One as a file would have it: the last `rank` dimensions, lse without its last.
  file::FileTensor stored(SlowArray a, std::size_t rank = 4) {
    const Tensor t = arrays.at(a).tensor();
    std::vector<index_t> shape(t.shape.end() - static_cast<std::ptrdiff_t>(rank), t.shape.end());
    if (a == lse) shape.pop_back();
    return file::c_order_tensor(t.dtype, shape, t.data);
  }
  /// Writes x.safetensors without these.
  void save(const std::vector<SlowArray>& without = {}, const std::map<std::string, std::string>& names = {}) {
    std::vector<file::NamedTensor> list;
    for (const auto& [a, array] : arrays) {
      if (std::find(without.begin(), without.end(), a) != without.end()) continue;
      const auto name = names.find(tensor_name(a));
      list.push_back({name == names.end() ? tensor_name(a) : name->second, stored(a)});
    }
    file::write_safetensors(*this / "x.safetensors", list);
  }
  /// Writes every input as .npy; the options that name them, and the outputs.
  Args save_npy(std::size_t rank, const std::vector<SlowArray>& without = {}) {
    Args args;
    for (const auto& [a, array] : arrays) {
      if (std::find(without.begin(), without.end(), a) != without.end()) continue;
      file::write_npy(*this / (tensor_name(a) + ".npy"), stored(a, rank));
      args = args + Args{"--" + tensor_name(a), tensor_name(a) + ".npy"};
    }
    for (const SlowArray a : outputs_of(p)) args = args + Args{"--" + tensor_name(a), tensor_name(a) + ".npy"};
    return args;
  }
  /// What the library makes of it.
  std::map<SlowArray, std::vector<double>> answer(Words M, DType compute) {
    std::map<SlowArray, Array> x = arrays;
    for (const SlowArray a : outputs_of(p)) {
      const DType narrowest = dtype == DType::f64 ? DType::f64 : DType::f32;
      x.emplace(a, Array(a == lse ? narrowest : dtype, shape_of(p, a), Strides::bhsd));
    }
    Tensors tensors;
    for (auto& [a, array] : x) tensors[a] = array.tensor();
    plan::Options options;
    options.M = M;
    RunOptions types;
    types.compute = compute;
    redblue::run(plan::make_plan(p, options), tensors, types);
    std::map<SlowArray, std::vector<double>> answer;
    for (const SlowArray a : outputs_of(p)) answer[a] = x.at(a).get();
    return answer;
  }
  Args command(const Args& more = {}, const std::string& M = "300") const {
    return Args{"run", "--op", op_name(p.op), "--M", M} + scale() + more;
  }
  Args scale() const { return p.scale ? Args{"--scale", std::to_string(*p.scale)} : Args{}; }
};

/// The numbers of a stored tensor of any type.
std::vector<double> widened(const file::Tensor& t) {
  if (t.dtype() == DType::f64 || t.dtype() == DType::f32) return numbers(t);
  std::vector<double> x;
  const auto* bits = t.as<std::uint16_t>();
  for (index_t i = 0; i < t.size(); ++i)
    x.push_back(static_cast<double>(t.dtype() == DType::f16
                                        ? static_cast<float>(std::bit_cast<Eigen::half>(bits[i]))
                                        : static_cast<float>(std::bit_cast<Eigen::bfloat16>(bits[i]))));
  return x;
}

TEST(CliOperations, RunSolvesNpyFilesOfEveryRank) {
  for (const Operation op : kAll)
    for (const std::size_t rank : {2U, 3U, 4U}) {
      Stock w(sample(op, rank < 4 ? 1 : 2, rank < 3 ? 1 : 4));
      const Args files = w.save_npy(rank);
      const auto before = w.files();
      const Finished f = w.run(w.command(files));
      ASSERT_EQ(f.exit_code, 0) << op_name(op) << ": " << f.err;
      auto expected = before;
      const auto answer = w.answer(300, DType::f32);
      for (const SlowArray a : outputs_of(w.p)) {
        SCOPED_TRACE(op_name(op) + ", " + tensor_name(a));
        const file::Tensor t = file::read_npy(w / (tensor_name(a) + ".npy"));
        std::vector<index_t> shape = vector_of(shape_of(w.p, a));
        shape.erase(shape.begin(), shape.end() - static_cast<std::ptrdiff_t>(rank));
        if (a == lse) shape.pop_back();
        EXPECT_EQ(t.shape(), shape);
        EXPECT_EQ(t.dtype(), DType::f32);
        EXPECT_EQ(numbers(t), answer.at(a));
        expected.insert(tensor_name(a) + ".npy");
      }
      EXPECT_EQ(w.files(), expected);
    }
}

TEST(CliOperations, RunKeepsTheElementTypeOfItsInputs) {
  for (const Operation op : kAll)
    for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
      Stock w(sample(op), dtype);
      w.save();
      const Finished f = w.run(w.command(kSafetensorsFiles + "--json"_args));
      ASSERT_EQ(f.exit_code, 0) << op_name(op) << ": " << f.err;
      const bool wide = dtype == DType::f64;
      EXPECT_EQ(f.json()["compute_dtype"], wide ? "f64" : "f32");
      const file::Safetensors y = file::read_safetensors(w / "y.safetensors");
      const auto answer = w.answer(300, wide ? DType::f64 : DType::f32);
      EXPECT_EQ(y.names().size(), answer.size());
      for (const auto& [a, words] : answer) {
        SCOPED_TRACE(op_name(op) + ", " + tensor_name(a) + ", " + std::string(name_of(dtype)));
        const file::Tensor t = y.tensor(tensor_name(a));
        EXPECT_EQ(t.dtype(), a == lse && size_of(dtype) < 4 ? DType::f32 : dtype);
        std::vector<index_t> shape = vector_of(shape_of(w.p, a));
        if (a == lse) shape.pop_back();
        EXPECT_EQ(t.shape(), shape);
        EXPECT_EQ(widened(t), words);
      }
    }
}

TEST(CliOperations, RunTakesAndGivesAnyNames) {
  for (const Operation op : kAll) {
    Stock w(sample(op));
    w.save();
    ASSERT_EQ(w.run(w.command(kSafetensorsFiles)).exit_code, 0);
    std::map<std::string, std::string> names;
    Args options;
    const auto rename = [&](SlowArray a, const std::string& prefix) {
      names[tensor_name(a)] = prefix + tensor_name(a);
      options = options + Args{"--name", tensor_name(a) + "=" + prefix + tensor_name(a)};
    };
    for (const auto& [a, array] : w.arrays) rename(a, "layer.0/");
    for (const SlowArray a : outputs_of(w.p))
      if (!w.arrays.contains(a)) rename(a, "of = ");
    w.save({}, names);
    const Finished f = w.run(w.command("--input x.safetensors --output z.safetensors --verify"_args + options));
    ASSERT_EQ(f.exit_code, 0) << f.err << f.out;
    const file::Safetensors y = file::read_safetensors(w / "y.safetensors"),
                            z = file::read_safetensors(w / "z.safetensors");
    EXPECT_EQ(z.names().size(), outputs_of(w.p).size());
    for (const SlowArray a : outputs_of(w.p))
      EXPECT_EQ(numbers(z.tensor(names.at(tensor_name(a)))), numbers(y.tensor(tensor_name(a))));
  }
}

TEST(CliOperations, RunComputesTheForwardPassWhereItIsNotGiven) {
  for (const Operation op : {Operation::backward, Operation::gradient_x, Operation::backward_x}) {
    Stock w(sample(op), DType::f64);
    w.save();
    const Finished given = w.run(w.command(kSafetensorsFiles + "--json"_args));
    ASSERT_EQ(given.exit_code, 0) << given.err;
    const file::Safetensors y = file::read_safetensors(w / "y.safetensors");
    std::map<SlowArray, std::vector<double>> expected;
    for (const SlowArray a : outputs_of(w.p)) expected[a] = numbers(y.tensor(tensor_name(a)));
    w.save({O, lse});
    const Finished alone = w.run(w.command(kSafetensorsFiles + "--json --verify"_args));
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const Json j = alone.json();
    EXPECT_EQ(j["problem"]["forward_given"], false);
    EXPECT_EQ(given.json()["problem"]["forward_given"], true);
    EXPECT_FALSE(j["verify"].contains("given"));
    EXPECT_EQ(j["moved"], j["formula"]);
    EXPECT_EQ(j["moved"]["io"],
              j["forward"]["io"].get<std::int64_t>() + given.json()["moved"]["io"].get<std::int64_t>());
    const file::Safetensors z = file::read_safetensors(w / "y.safetensors");
    for (const SlowArray a : outputs_of(w.p)) {
      const std::vector<double> ours = numbers(z.tensor(tensor_name(a)));
      ASSERT_EQ(ours.size(), expected.at(a).size());
      for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], expected.at(a)[i], 1e-11);
    }
    // .npy files too.
    Stock n(sample(op));
    EXPECT_EQ(n.run(n.command(n.save_npy(4, {O, lse}) + "--verify"_args)).exit_code, 0);
  }
}

TEST(CliOperations, RunReadsOneTensorOfSharedSources) {
  for (const Operation op : {Operation::forward_x, Operation::gradient_x, Operation::backward_x, Operation::backward_w})
    for (const Sources sources : {Sources::shared, Sources::self}) {
      Problem p = sample(op);
      p.sources = sources;
      p.n_k = sources == Sources::self ? p.n_q : p.n_k;
      Stock w(p);
      EXPECT_FALSE(w.arrays.contains(A3));
      w.save();
      const Args option = {"--sources", std::string(name_of(sources))};
      const Finished f = w.run(w.command(kSafetensorsFiles + option + "--verify --json"_args));
      ASSERT_EQ(f.exit_code, 0) << op_name(op) << f.err << f.out;
      EXPECT_EQ(f.json()["problem"]["sources"], name_of(sources));
      // Without the option the others are missing.
      const Finished bare = w.run(w.command(kSafetensorsFiles));
      EXPECT_EQ(bare.exit_code, 2);
      EXPECT_THAT(bare.err, HasSubstr(sources == Sources::self ? "a2" : "a3"));
    }
}

TEST(CliOperations, RunTakesOtherScoreFunctionsWithoutAForwardPass) {
  for (const char* score : {"sigmoid", "relu", "identity"})
    for (const Operation op : kGradients) {
      Problem p = sample(op);
      p.score = *from_name<Score>(score);
      Stock w(p);
      EXPECT_FALSE(w.arrays.contains(lse));
      w.save();
      const Finished f = w.run(w.command(kSafetensorsFiles + Args{"--score", score, "--verify", "--json"}));
      ASSERT_EQ(f.exit_code, 0) << op_name(op) << ", " << score << f.err << f.out;
      EXPECT_EQ(f.json()["problem"]["score"], score);
      EXPECT_EQ(f.json()["moved"], f.json()["formula"]);
    }
}

TEST(CliOperations, VerifySaysWhatItCompared) {
  for (const Operation op : kGradients) {
    Stock w(sample(op));
    w.save();
    const Args args = w.command(kSafetensorsFiles + "--verify"_args);
    const Finished json = w.run(args + "--json"_args), text = w.run(args), quiet = w.run(args + "--quiet"_args);
    ASSERT_EQ(json.exit_code, 0) << json.err;
    EXPECT_EQ(json.err, "");
    const Json v = json.json()["verify"];
    EXPECT_EQ(v["ok"], true);
    for (const SlowArray a : outputs_of(w.p)) {
      for (const char* field : {"error", "naive_error", "tolerance", "nan_mismatches", "ok"})
        EXPECT_TRUE(v[tensor_name(a)].contains(field)) << tensor_name(a) << ", " << field;
      for (const char* field : {"gradient", "difference", "tolerance", "ok"})
        EXPECT_TRUE(v["central_differences"][tensor_name(a)].contains(field)) << tensor_name(a) << ", " << field;
      EXPECT_THAT(text.out, HasSubstr("verify " + tensor_name(a)));
    }
    for (const char* name : {"o", "lse"}) EXPECT_EQ(v["given"][name]["ok"], true);
    EXPECT_EQ(text.exit_code, 0);
    EXPECT_THAT(text.out, AllOf(HasSubstr("central differences"), HasSubstr("as given"), HasSubstr("ok")));
    EXPECT_EQ(quiet.exit_code, 0);
    EXPECT_EQ(quiet.out + quiet.err, "");
  }
}

TEST(CliOperations, VerifyFailsWhereTheGivenForwardPassIsWrong) {
  for (const Operation op : kGradients)
    for (const SlowArray spoilt : {lse, O}) {
      Stock w(sample(op));
      w.nudge(spoilt, 1);
      w.save();
      // That cannot be seen without --verify, and the answer is written either way.
      EXPECT_EQ(w.run(w.command(kSafetensorsFiles)).exit_code, 0);
      const Args args = w.command(kSafetensorsFiles + "--verify"_args);
      const Finished json = w.run(args + "--json"_args), text = w.run(args);
      EXPECT_EQ(json.exit_code, 1) << op_name(op);
      EXPECT_EQ(text.exit_code, 1);
      EXPECT_THAT(text.out, HasSubstr("WRONG"));
      EXPECT_TRUE(w.files().contains("y.safetensors"));
      const Json v = json.json()["verify"];
      EXPECT_EQ(v["ok"], false);
      for (const SlowArray a : {O, lse}) EXPECT_EQ(v["given"][tensor_name(a)]["ok"], a != spoilt);
    }
}

TEST(CliOperations, VerifyReportsNaN) {
  for (const Operation op : kGradients) {
    Stock w(sample(op));
    w.nudge(dO, std::numeric_limits<double>::quiet_NaN());
    w.save();
    const Finished f = w.run(w.command(kSafetensorsFiles + "--verify --json"_args));
    EXPECT_EQ(f.exit_code, 1);
    const Json v = f.json()["verify"];
    EXPECT_EQ(v["nan_inputs"]["do"], 1);
    EXPECT_GT(v["nan_outputs"], 0);
  }
}

TEST(CliOperations, RefusesHalfAForwardPass) {
  for (const Operation op : kGradients) {
    Stock w(sample(op));
    w.save({O});
    expect_refused(w, {w.command(kSafetensorsFiles), {"lse is given and o is not", "neither"}});
    w.save({lse});
    expect_refused(w, {w.command(kSafetensorsFiles), {"o is given and lse is not", "neither"}});
    const Args npy = w.save_npy(4, {O});
    expect_refused(w, {w.command(npy), {"lse is given and o is not"}});
  }
  Stock w(sample(Operation::backward_w));
  w.save({O, lse});
  expect_refused(w, {w.command(kSafetensorsFiles), {"backward-w needs O and lse", "run operation forward"}});
}

TEST(CliOperations, RefusesMissingTensors) {
  for (const Operation op : cases<Operation>({std::begin(kNew), std::end(kNew)})) {
    Stock w(sample(op));
    for (const auto& [a, array] : w.arrays) {
      if (a == O || a == lse) continue;
      w.save({a});
      expect_refused(w, {w.command(kSafetensorsFiles), {"x.safetensors", tensor_name(a)}});
    }
    for (const auto& [a, array] : w.arrays) {
      if (a == O || a == lse) continue;
      const Args npy = w.save_npy(4, {a});
      expect_refused(w, {w.command(npy), {"--" + tensor_name(a)}});
    }
    Args without_outputs;
    for (const auto& [a, array] : w.arrays)
      without_outputs = without_outputs + Args{"--" + tensor_name(a), tensor_name(a) + ".npy"};
    expect_refused(w, {w.command(without_outputs), {"files are missing", "--" + tensor_name(outputs_of(w.p).front())}});
  }
}

TEST(CliOperations, RefusesShapesThatDisagree) {
  for (const Operation op : kNew) {
    const Problem p = sample(op);
    // The sizes come from some; the others must agree with them.
    const std::vector<SlowArray> sizes = op == Operation::backward     ? std::vector{Q, K, V}
                                         : op == Operation::backward_w ? std::vector{A1, A2, WQ, WV}
                                                                       : std::vector{A1, A2, X, Y};
    for (const SlowArray spoilt : inputs_of(p))
      for (std::size_t axis = 0; axis < 4; ++axis) {
        if (spoilt == lse && axis == 3) continue;  // it has none
        if (few_cases() && axis != static_cast<std::size_t>(spoilt) % 4) continue;
        if (op == Operation::forward_x && ((spoilt == A1 && axis == 2) || (spoilt == Y && axis == 3)))
          continue;  // any number of queries, and of columns of values
        Stock w(p);
        auto shape = shape_of(p, spoilt);
        shape[axis] += 1;
        w.arrays.insert_or_assign(spoilt, Array(DType::f32, shape, Strides::bhsd));
        w.arrays.at(spoilt).set(
            std::vector<double>(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3])));
        w.save();
        const bool decides = std::find(sizes.begin(), sizes.end(), spoilt) != sizes.end();
        const std::string name = tensor_name(spoilt);
        std::string text;
        for (const index_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
        const Finished f = w.run(w.command(kSafetensorsFiles));
        SCOPED_TRACE(op_name(op) + ", " + name + ", axis " + std::to_string(axis));
        EXPECT_EQ(f.exit_code, 2);
        EXPECT_FALSE(w.files().contains("y.safetensors"));
        if (decides)  // then another is wrong, or the number of heads
          EXPECT_THAT(f.err,
                      testing::AnyOf(AllOf(HasSubstr(" is ["), HasSubstr("it must be [")), HasSubstr("heads = ")));
        else
          EXPECT_THAT(f.err, AllOf(HasSubstr(name + " is [" + text + "]"), HasSubstr("it must be [")));
      }
    Stock w(p);
    w.save_npy(4);
    const SlowArray first = inputs_of(p).front(), last = inputs_of(p).back();
    file::write_npy(w / (tensor_name(last) + ".npy"),
                    file::c_order_tensor(DType::f32, {9, 5}, w.arrays.at(last).tensor().data));
    Args files;
    for (const SlowArray a : inputs_of(p)) files = files + Args{"--" + tensor_name(a), tensor_name(a) + ".npy"};
    for (const SlowArray a : outputs_of(p)) files = files + Args{"--" + tensor_name(a), tensor_name(a) + "-out.npy"};
    expect_refused(w, {w.command(files), {tensor_name(first) + " [", tensor_name(last) + " [9, 5]", "dimensions"}});
  }
}

TEST(CliOperations, RefusesOutputsThatAreInputsOrCannotBeWritten) {
  for (const Operation op : kNew) {
    Stock w(sample(op));
    const Args npy = w.save_npy(4);
    const std::string output = "--" + tensor_name(outputs_of(w.p).back()), input = tensor_name(inputs_of(w.p).front());
    const auto with = [&](const std::string& path) {
      Args args = npy;
      *(std::find(args.begin(), args.end(), output) + 1) = path;
      return w.command(args);
    };
    expect_refused(w, {with(input + ".npy"), {input + ".npy", "also an input"}});
    expect_refused(w, {with("no/such/place.npy"), {"no/such/place.npy"}});
    if (outputs_of(w.p).size() > 1)
      expect_refused(w, {with(tensor_name(outputs_of(w.p).front()) + ".npy"), {"same file"}});
    w.save();
    expect_refused(w, {w.command("--input x.safetensors --output x.safetensors"_args), {"also an input"}});
  }
}

TEST(CliOperations, KeepsTheOldOutputsWhenItRefuses) {
  for (const Operation op : kNew) {
    Stock w(sample(op));
    w.save();
    file::write_text(w / "y.safetensors", "old");
    expect_refused(w, {w.command(kSafetensorsFiles, "1"), {"M = 1 words is too small", "needs M >= "}});
    expect_refused(w, {w.command(kSafetensorsFiles + "--schedule no_such"_args), {"no_such"}});
    EXPECT_EQ(file::read_text(w / "y.safetensors"), "old");
  }
}

const Args kSizes = "--nq 60 --nk 50 --d 8 --dv 6"_args;
Args sizes_of(Operation op, const Args& more = {}) {
  return Args{"--op", op_name(op)} + kSizes + (op == Operation::backward_w ? "--d-in 16"_args : Args{}) + more;
}

TEST(CliOperations, PlanBoundCountAndTracePrintTheirSchemas) {
  const Workplace w;
  for (const Operation op : kNew) {
    SCOPED_TRACE(op_name(op));
    const Args sizes = sizes_of(op, {"--M", "700"});
    const Finished plan = w.run("plan --json"_args + sizes), bound = w.run("bound --json"_args + sizes),
                   count = w.run("count --json"_args + sizes), trace = w.run("trace --json"_args + sizes);
    for (const Finished* f : {&plan, &bound, &count, &trace}) ASSERT_EQ(f->exit_code, 0) << f->err;
    const std::set<std::string> problem = {"op", "batch", "heads",  "kv_heads", "n_q",   "n_k",
                                           "d",  "d_v",   "causal", "scale",    "score", "lse_required"};
    for (const Finished* f : {&plan, &bound, &count, &trace}) {
      const Json p = f->json()["problem"];
      expect_fields(p, problem);
      EXPECT_EQ(p["op"], op_name(op));
      EXPECT_EQ(p.contains("sources"), op != Operation::backward);
      EXPECT_EQ(p.contains("forward_given"), op != Operation::forward_x);
      EXPECT_EQ(p.contains("d_in"), op == Operation::backward_w);
    }
    Json j = plan.json();
    EXPECT_EQ(j["schema"], "redblue.plan/1");
    expect_fields(j, {"M", "bound", "bounds", "plans", "refused", "chosen", "reason"});
    std::set<std::string> listed;
    for (const Json& row : j["plans"]) {
      expect_fields(row, {"schedule", "tiling", "reads", "writes", "io", "footprint", "workspace", "flops", "ratio",
                          "work", "stable", "fits"});
      expect_fields(row["work"], {"flops", "relative"});
      EXPECT_GE(row["work"]["relative"], 1);
      EXPECT_EQ(row["io"], row["reads"].get<std::int64_t>() + row["writes"].get<std::int64_t>());
      EXPECT_EQ(row["fits"], row["footprint"] <= 700);
      if (op == Operation::backward) {
        if (row["schedule"] != "grouped_key_outer") {
          EXPECT_THAT(row["label"], testing::AnyOf("e1", "e2", "e3", "e4", "e5", "e6"));
        }
        EXPECT_EQ(row["work"]["products"], row["schedule"] == "two_pass" ? 7 : 5);
      }
      listed.insert(row["schedule"]);
    }
    for (const Json& row : j["refused"]) listed.insert(row["schedule"]);
    for (const std::string_view name : softmax_schedules(op)) EXPECT_TRUE(listed.contains(std::string(name))) << name;
    const Json chosen = j["plans"][j["chosen"].get<std::size_t>()];
    EXPECT_EQ(chosen["stable"], true);
    EXPECT_EQ(chosen["fits"], true);

    const Json bounds = bound.json();
    EXPECT_EQ(bounds["schema"], "redblue.bound/1");
    for (const Json& b : bounds["bounds"])
      expect_fields(b, {"words", "theorem", "class", "status", "condition", "holds"});
    EXPECT_EQ(bounds["bound"], j["bound"]);
    EXPECT_EQ(bounds["bounds"], j["bounds"]);

    const Json counted = count.json();
    EXPECT_EQ(counted["schema"], "redblue.count/1");
    expect_fields(counted, {"schedule", "tiling", "counted", "formula", "equal", "bound", "ratio", "fits", "work"});
    EXPECT_EQ(counted["counted"], counted["formula"]);
    EXPECT_EQ(counted["equal"], true);
    EXPECT_EQ(counted["schedule"], chosen["schedule"]);
    EXPECT_EQ(counted["counted"]["io"], chosen["io"]);
    for (const char* direction : {"reads", "writes"}) {
      std::int64_t sum = 0;
      for (const Json& array : counted["counted"]["per_array"]) sum += array[direction].get<std::int64_t>();
      EXPECT_EQ(counted["counted"][direction], sum);
    }

    const Json traced = trace.json();
    EXPECT_EQ(traced["schema"], "redblue.trace/2");
    EXPECT_EQ(traced["schedule"], chosen["schedule"]);
    std::string operations;
    for (const Json& line : traced["operations"]) operations += line.get<std::string>() + "\n";
    Problem p = sample(op);
    for (const SlowArray a : outputs_of(p))
      EXPECT_THAT(operations, testing::AnyOf(HasSubstr("write " + std::string(name_of(a)) + "#0"),
                                             HasSubstr(std::string(name_of(a)) + "#0")));
    const Finished text = w.run("trace"_args + sizes);
    EXPECT_EQ(text.out, "# redblue.trace/2\n" + operations);
    for (const char* command : {"plan", "bound", "count"}) {
      const Finished table = w.run(Args{command} + sizes);
      EXPECT_EQ(table.exit_code, 0);
      EXPECT_THAT(table.out, HasSubstr(chosen["schedule"].is_null() ? "" : j["bound"]["words"].dump()));
    }
  }
}

TEST(CliOperations, SchedulesGoByTheirLabelsToo) {
  const Workplace w;
  const Json plans = w.run("plan --json"_args + sizes_of(Operation::backward, {"--M", "700"})).json()["plans"];
  EXPECT_GE(plans.size(), 6U);
  for (const Json& row : plans) {
    const std::string label = row.value("label", row["schedule"].get<std::string>());
    const Finished f =
        w.run(Args{"count", "--json", "--schedule", label} + sizes_of(Operation::backward, {"--M", "700"}));
    ASSERT_EQ(f.exit_code, 0) << f.err;
    EXPECT_EQ(f.json()["schedule"], row["schedule"]);
    EXPECT_EQ(f.json()["counted"]["io"], row["io"]);
    Stock stock(sample(Operation::backward));
    stock.save();
    EXPECT_EQ(stock.run(stock.command(kSafetensorsFiles + Args{"--schedule", label, "--verify"})).exit_code, 0);
  }
}

/// Whoever asks for one gets it, with a word on what it needs.
TEST(CliOperations, PrintedAlgorithmsSayWhatTheyNeed) {
  const Workplace w;
  const Args ninth = "--op gradient-x --n 512 --d 64 --M 4096 --schedule algorithm_9"_args;
  const Finished json = w.run("count --json"_args + ninth), text = w.run("count"_args + ninth),
                 table = w.run("plan"_args + ninth);
  ASSERT_EQ(json.exit_code, 0) << json.err;
  EXPECT_EQ(json.json()["fits"], false);
  EXPECT_GT(json.json()["counted"]["peak"], 4096);
  EXPECT_EQ(json.json()["equal"], true);
  EXPECT_THAT(text.out, HasSubstr("needs 2.57 M"));
  EXPECT_THAT(table.out, HasSubstr("needs 2.57 M"));
}

TEST(CliOperations, WithForwardTheWordsOfTheForwardPassAreIncluded) {
  const Workplace w;
  for (const Operation op : {Operation::backward, Operation::gradient_x, Operation::backward_x}) {
    SCOPED_TRACE(op_name(op));
    const Args more = "--batch 2 --heads 2 --M 500 --json"_args;
    const Operation before = op == Operation::backward ? Operation::forward : Operation::forward_x;
    const Json with = w.run("count --with-forward"_args + sizes_of(op, more)).json(),
               alone = w.run("count"_args + sizes_of(op, more)).json(),
               forward = w.run("count --lse"_args + sizes_of(before, more)).json(),
               plan = w.run("plan --with-forward"_args + sizes_of(op, more)).json();
    EXPECT_EQ(with["schedule"], alone["schedule"]);
    EXPECT_EQ(with["forward"]["schedule"], forward["schedule"]);
    EXPECT_EQ(with["equal"], true);
    for (const char* what : {"reads", "writes", "io", "flops"})
      EXPECT_EQ(with["counted"][what],
                alone["counted"][what].get<std::int64_t>() + forward["counted"][what].get<std::int64_t>());
    EXPECT_EQ(with["counted"]["peak"], std::max(alone["counted"]["peak"], forward["counted"]["peak"]));
    EXPECT_FALSE(alone.contains("forward"));
    EXPECT_EQ(with["problem"]["forward_given"], false);
    EXPECT_EQ(plan["forward"]["schema"], "redblue.plan/1");
    EXPECT_EQ(plan["forward"]["plans"][plan["forward"]["chosen"].get<std::size_t>()]["io"], forward["counted"]["io"]);
    const double words = plan["bound"]["words"].get<double>();
    EXPECT_NEAR(with["ratio"].get<double>(), with["counted"]["io"].get<double>() / words, 1e-9);
  }
  expect_refused(
      w, {"plan --with-forward --M 500"_args + sizes_of(Operation::backward_w), {"backward-w needs O and lse"}});
}

TEST(CliOperations, TooSmallMListsTheSmallestOfEverySchedule) {
  const Workplace w;
  for (const Operation op : kNew) {
    const Finished f = w.run("plan --M 1"_args + sizes_of(op));
    EXPECT_EQ(f.exit_code, 2);
    const std::string sentence = "the smallest that works is ";
    const std::size_t at = f.err.find(sentence);
    ASSERT_NE(at, std::string::npos) << f.err;
    const int least = std::stoi(f.err.substr(at + sentence.size()));
    EXPECT_EQ(w.run(Args{"plan", "--M", std::to_string(least)} + sizes_of(op)).exit_code, 0);
    EXPECT_EQ(w.run(Args{"plan", "--M", std::to_string(least - 1)} + sizes_of(op)).exit_code, 2);
  }
}

TEST(CliOperations, RefusesProblemsThatMakeNoSense) {
  const Workplace w;
  const auto refused = [&](const Args& args, const std::vector<std::string>& says) {
    expect_refused(w, {"plan --M 1000"_args + args, says});
  };
  refused("--op gradient-x --nq 4 --nk 5 --d 3 --sources self"_args, {"n_q = 4", "n_k = 5"});
  refused("--op backward --n 4 --d 3 --sources shared"_args, {"sources = shared", "backward"});
  refused("--op gradient-x --n 4 --d 3 --schedule shared_source"_args, {"A2 = A3"});
  refused("--op gradient-x --nq 4 --nk 5 --d 3 --schedule algorithm_9"_args, {"algorithm_9"});
  refused("--op gradient-x --n 4 --d 3 --causal --schedule algorithm_6"_args, {"mask"});
  refused("--op gradient-x --n 4 --d 3 --schedule e1"_args, {"e1", "9R-a"});
  refused("--op backward --n 4 --d 3 --width A1=2"_args, {"A1"});
  refused("--op backward --n 4 --d 3 --no-workspace --schedule e5"_args, {"workspace"});
}

}  // namespace
}  // namespace redblue::test
