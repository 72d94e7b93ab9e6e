#include "redblue/methods/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "redblue/machines/ram/storage.hpp"
#include "redblue/masks/patterns.hpp"
#include "redblue/methods/maths/approximations.hpp"
#include "redblue/methods/regimes.hpp"
#include "redblue/verify/most.hpp"

namespace redblue {

namespace {

constexpr index_t kMostDegree = 4;  // monomials of more are beyond any memory where heads are of usual size

/// O of a run, contiguous, in the type that it is written in.
class Output {
 public:
  Output(const Problem& p, DType type)
      : type_(type),
        shape_{p.batch, p.heads, p.n_q, p.d_v},
        bytes_(static_cast<std::size_t>(p.batch * p.heads * p.n_q * p.d_v) * size_of(type)) {}
  Tensor tensor() { return {bytes_.data(), type_, shape_}; }
  std::vector<HeadError> errors(const Output& exact, const std::optional<Certificate>& certificate = {}) const {
    std::vector<HeadError> heads;
    heads.reserve(static_cast<std::size_t>(shape_[0] * shape_[1]));
    for (index_t h = 0; h < shape_[0] * shape_[1]; ++h) {
      long double difference = 0, norm = 0;  // squares of doubles
      double farthest = 0, largest = 0;
      const std::vector<double> words = head(h), exact_words = exact.head(h);
      for (std::size_t k = 0; k < words.size(); ++k) {
        const long double wanted = exact_words[k], gap = words[k] - wanted;
        difference += gap * gap;
        norm += wanted * wanted;
        farthest = most(farthest, static_cast<double>(std::abs(gap)));
        largest = std::max(largest, std::abs(exact_words[k]));
      }
      const auto share = [](double x, double of) { return x == 0 ? 0 : std::abs(x / of); };
      HeadError& e = heads.emplace_back();
      e.batch = h / shape_[1];
      e.head = h % shape_[1];
      e.frobenius = share(static_cast<double>(std::sqrt(difference)), static_cast<double>(std::sqrt(norm)));
      e.largest = share(farthest, largest);
      e.most_frobenius = e.frobenius;
      e.most_largest = e.largest;
      if (!certificate) continue;
      const HeadCertificate& c = certificate->heads[static_cast<std::size_t>(h)];
      e.proved = share(c.output_error + c.rounding, largest);
    }
    return heads;
  }

 private:
  std::vector<double> head(index_t h) const {
    const index_t words = shape_[2] * shape_[3];
    machine::Storage s;
    s.data = const_cast<std::byte*>(bytes_.data());
    s.dtype = type_;
    s.row_stride = words;
    std::vector<double> list(static_cast<std::size_t>(words));
    machine::gather<double>(s, {SlowArray::O, 0, h, 0, {1, words}}, list.data(), words);
    return list;
  }

  DType type_;
  std::array<index_t, 4> shape_;
  std::vector<std::byte> bytes_;
};

plan::Plan plan_for(const Problem& p, Words M) {
  plan::Options o;
  o.M = M;
  return plan::make_plan(p, o);
}

/// Exact attention in fp64, on q or on zeros.
Output in_fp64(const Problem& p, const Inputs& inputs, const CompareOptions& options) {
  Output o(p, DType::f64);
  RunOptions run_options = options.run;
  run_options.compute = DType::f64;
  run(plan_for(p, options.M), inputs, {o.tensor(), {}}, run_options);
  return o;
}

/// To 3 digits, rounded up.
std::string rounded_up(double x) {
  if (!(x > 0)) return "0.001";  // all scores are 0
  const double digit = std::pow(10, std::floor(std::log10(x)) - 2);
  return fmt::format("{:.3g}", std::ceil(x / digit) * digit);
}

void require_comparable(const Problem& p) {
  p.validate();
  if (p.op != Operation::forward || p.score != Score::softmax || p.approximation || !p.patterns.empty() ||
      p.modifiers().any())
    throw Unsupported(
        "compare: methods are compared on softmax attention, forward, with or without a causal mask, a window, packed "
        "or padded sequences, and nothing else: no pattern, bias, ALiBi, softcap, sinks or dropout");
}

/// Contender::reseeded of a problem with a method.
std::function<Problem(index_t)> reseeded(const Problem& p) {
  const auto draws = [](const auto& method) {
    if constexpr (requires { method.random_signs; })
      return method.random_signs;
    else
      return requires { method.seed; };
  };
  if (const auto rows = shared_row_polynomials_of(p.approximation); rows != nullptr && rows->cluster > 0)
    return [p, rows](index_t later) {
      RowOptions how = *rows;
      how.seed += later;
      Problem again = p;
      again.approximation = polynomials_of_rows(rows->degree(), rows->range(), how);
      return again;
    };
  if (!std::visit(draws, method_of(p))) return {};
  return [p](index_t later) {
    Problem again = p;
    Method method = method_of(p);
    std::visit(
        [later](auto& m) {
          if constexpr (requires { m.seed; }) m.seed += later;
        },
        method);
    again.approximation = approximate_by(method);
    again.validate();
    return again;
  };
}

/// Adds a seed to the errors of those before it; mean_of() ends it.
void add(std::vector<HeadError>& sums, const std::vector<HeadError>& errors) {
  for (std::size_t h = 0; h < sums.size(); ++h) {
    sums[h].frobenius += errors[h].frobenius;
    sums[h].largest += errors[h].largest;
    sums[h].most_frobenius = most(sums[h].most_frobenius, errors[h].frobenius);
    sums[h].most_largest = most(sums[h].most_largest, errors[h].largest);
  }
}
void mean_of(std::vector<HeadError>& sums, index_t seeds) {
  for (HeadError& e : sums) {
    e.frobenius /= static_cast<double>(seeds);
    e.largest /= static_cast<double>(seeds);
  }
}

/// Throws Unsupported where Contender::if_cheap leaves this plan out.
void require_little_work(const Contender& c, const plan::Plan& plan, Words exact_flops) {
  const double multiply_adds = plan.flops().to_double() / 2, times = plan.flops().to_double() / exact_flops.to_double();
  if (!c.if_cheap || multiply_adds <= kLittleWork || times <= kMostWork) return;
  throw Unsupported(
      fmt::format("it would take {:.3g} multiply-adds, {:.3g} times as many as exact attention; methods that are named "
                  "always run: compare with {}",
                  multiply_adds, times, c.setting));
}

/// What contenders() call a problem that asks for a polynomial, or for a method by its place in Method.
std::string short_name(const Problem& p) {
  constexpr std::array<const char*, 10> kNames{"exact", "linear",          "performer", "linformer", "nystroemformer",
                                               "smyrf", "hyper_attention", "reformer",  "coreset",   "sample"};
  return polynomial_of(p) != nullptr ? "polynomial" : kNames.at(method_of(p).index());
}

}  // namespace

std::vector<Contender> contenders(const Problem& problem, const std::vector<std::string>& methods) {
  require_comparable(problem);
  std::vector<Contender> list{{"exact", "", problem}};
  for (const std::string& text : methods) {
    Contender& c = list.emplace_back("", "--approximate " + text, problem);
    c.problem.approximate(text);
    c.method = short_name(c.problem);
    try {
      c.problem.validate();
    } catch (const InvalidProblem& e) {
      throw InvalidProblem(fmt::format("{}: {}", text, e.what()));
    }
    c.reseeded = reseeded(c.problem);
  }
  return list;
}

std::vector<Contender> contenders(const Problem& problem, const Inputs& inputs, DType compute) {
  require_comparable(problem);
  std::vector<Contender> list;
  list.push_back({"exact", "", problem});

  const auto add_new = [&](Contender c) {  // where there are few keys, settings become the same
    if (std::none_of(list.begin(), list.end(), [&](const Contender& x) { return x.setting == c.setting; }))
      list.push_back(std::move(c));
  };
  const auto add_method = [&](const char* method, const std::string& text) {
    Contender c{method, "--approximate " + text, problem};
    c.if_cheap = true;
    try {
      c.problem.approximate(text);
      c.problem.validate();
      c.reseeded = reseeded(c.problem);
    } catch (const Error& e) {
      c.refused = e.what();
    }
    add_new(std::move(c));
  };
  const DType of_norms = compute == DType::f64 ? DType::f64 : DType::f32;
  const std::string range = rounded_up(norms_of(problem, inputs, of_norms).range());
  for (index_t degree = 1; degree <= kMostDegree; ++degree)
    add_method("polynomial", fmt::format("{}:{}", degree, range));
  for (const char* fit : {"taylor", "chebyshev"}) add_method("polynomial", fmt::format("2:{},{}", range, fit));
  for (const char* text : {"2:12,centred,no-exact-rows", "2:3,centred,exact-keys=16", "2:6,centred,exact-keys=64",
                           "2:64,gaussian,no-exact-rows", "2:1,gaussian"})
    add_method("polynomial", text);
  const index_t n_k = problem.n_k;
  if (n_k >= 2)
    add_method("polynomial", fmt::format("2:1.5,gaussian,cluster={},no-exact-rows", n_k > 64 ? 64 : n_k / 2));
  if (n_k >= 4) add_method("polynomial", fmt::format("2:6,centred,exact-keys={}", n_k / 4));  // too many to be kept
  const auto of_keys = [n_k](index_t usual) { return std::min(usual, n_k); };
  for (const index_t keys : {64, 256}) add_method("sample", fmt::format("sample:{}", of_keys(keys)));
  add_method("linear", "linear");
  for (const char* text : {"performer:64", "performer:256", "performer:1024"}) add_method("performer", text);
  for (const index_t rank : {64, 256}) add_method("linformer", fmt::format("linformer:{}", of_keys(rank)));
  add_method("linformer", fmt::format("linformer:{},signs", of_keys(256)));
  for (const index_t landmarks : {16, 64, 128})
    add_method("nystroemformer", fmt::format("nystroem:{}", std::min(of_keys(landmarks), problem.n_q)));
  for (const index_t rounds : {1, 4, 8})
    add_method("smyrf", fmt::format("smyrf:rounds={},cluster={}", rounds, of_keys(64)));
  for (const index_t samples : {64, 256})
    add_method("hyper_attention", fmt::format("hyper:block={},samples={}", of_keys(64), of_keys(samples)));
  add_method("reformer", fmt::format("reformer:rounds=4,chunk={},buckets=16", of_keys(64)));
  for (const auto& [rank, more] : {std::pair<index_t, const char*>{32, ""}, {64, ",tau=balanced"}, {128, ",carried"}})
    add_method("coreset", fmt::format("coreset:block={},rank={}{}", of_keys(128), of_keys(rank), more));

  const patterns::Between between{problem.n_q, problem.n_k, problem.causal_offset};
  const auto add_pattern = [&](const char* method, const std::string& setting, RunLists pattern) {
    Contender c{method, setting, problem};
    c.problem.patterns = {std::make_shared<const RunLists>(std::move(pattern))};
    add_new(std::move(c));
  };
  for (const auto& [share, globals] : {std::pair<index_t, index_t>{16, 1}, {8, 16}}) {
    const index_t w = problem.n_k / share, g = std::min(globals, problem.n_k);
    add_pattern("longformer", fmt::format("--window {0},{0} --globals {1}", w, g),
                patterns::longformer(between, w, w, g));
  }
  const index_t block = std::max<index_t>(1, problem.n_k / 16);
  patterns::BigBird big_bird{.block = block, .window = 1, .globals = 1, .randoms = 3};
  add_pattern("bigbird", fmt::format("--big-bird {},1,1,3", block), patterns::big_bird(between, big_bird));
  list.back().reseeded = [problem, between, big_bird](index_t later) mutable {
    big_bird.seed = later;
    Problem again = problem;
    again.patterns = {std::make_shared<const RunLists>(patterns::big_bird(between, big_bird))};
    return again;
  };
  return list;
}

Comparisons compare(const std::vector<Contender>& contenders, const Inputs& inputs, const CompareOptions& options,
                    const std::function<void(std::size_t)>& done) {
  if (contenders.empty() || contenders.front().method != "exact")
    throw InvalidProblem("compare: the first contender must be exact attention");
  if (options.repetitions < 1 || options.repetitions > 1000)
    throw InvalidProblem(fmt::format("repetitions = {}: give a number from 1 to 1000", options.repetitions));
  if (options.seeds < 1 || options.seeds > 1000)
    throw InvalidProblem(fmt::format("seeds = {}: give a number from 1 to 1000", options.seeds));
  const Problem& exact = contenders.front().problem;
  require_comparable(exact);
  for (const Contender& c : contenders)  // the last seed is the largest: refused before anything runs
    if (c.reseeded) c.reseeded(options.seeds - 1);
  const Output wanted = in_fp64(exact, inputs, options);

  Comparisons result;
  const std::vector<double> zeros(static_cast<std::size_t>(exact.batch * exact.heads * exact.n_q * exact.d));
  Inputs without_scores = inputs;
  without_scores.q = Tensor(zeros, {exact.batch, exact.heads, exact.n_q, exact.d});
  result.mean_of_values = in_fp64(exact, without_scores, options).errors(wanted);

  const Words exact_flops = plan_for(exact, options.M).flops();
  for (const Contender& c : contenders) {
    Compared row;
    row.contender = c;
    try {
      if (c.refused.empty()) {
        const plan::Plan plan = plan_for(c.problem, options.M);
        require_little_work(c, plan, exact_flops);
        row.schedule = plan.row().schedule;
        row.footprint = plan.footprint();
        Output o(c.problem, inputs.q.dtype);
        std::vector<double> seconds;
        for (index_t k = 0; k < options.repetitions; ++k) {
          const auto start = std::chrono::steady_clock::now();
          row.words = plan::without_lse(run(plan, inputs, {o.tensor(), {}}, options.run).io, c.problem).total();
          seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                         seconds.end());
        row.seconds = seconds[seconds.size() / 2];
        const RowPolynomials* rows = row_polynomials_of(c.problem);
        const bool certified = polynomial_of(c.problem) != nullptr && (rows == nullptr || !rows->uncertified());
        if (certified && options.run.compute != DType::bf16)
          row.certificate = certify(c.problem, inputs, options.run.compute);
        row.heads = o.errors(wanted, row.certificate);
        if (c.reseeded) row.seeds = options.seeds;
        for (index_t later = 1; later < row.seeds; ++later) {
          run(plan_for(c.reseeded(later), options.M), inputs, {o.tensor(), {}}, options.run);
          add(row.heads, o.errors(wanted));
        }
        mean_of(row.heads, row.seeds);
      }
    } catch (const CapacityError& e) {
      if (c.method == "exact") throw;
      row.contender.refused = e.what();
    } catch (const Unsupported& e) {  // a mask that it does not know, or too much work
      if (c.method == "exact") throw;
      row.contender.refused = e.what();
    }
    result.methods.push_back(std::move(row));
    if (done) done(result.methods.size());
  }
  return result;
}

}  // namespace redblue
