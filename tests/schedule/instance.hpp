#pragma once
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "redblue/machine/checked.hpp"
#include "redblue/machine/ram.hpp"
#include "redblue/plan/schedules.hpp"
#include "redblue/schedule/parts/workspace.hpp"
#include "support/gradients.hpp"

/// One instance of any operation: its arrays, its dense answer, and slow memory to run a schedule on.
namespace redblue::test {

template <class Operands>
constexpr Operation operation_of() {
  if constexpr (std::same_as<Operands, schedule::ForwardOperands>) return Operation::forward;
  if constexpr (std::same_as<Operands, schedule::BackwardOperands>) return Operation::backward;
  if constexpr (std::same_as<Operands, schedule::ForwardXOperands>) return Operation::forward_x;
  if constexpr (std::same_as<Operands, schedule::GradientXOperands>) return Operation::gradient_x;
  if constexpr (std::same_as<Operands, schedule::BackwardXOperands>) return Operation::backward_x;
  return Operation::backward_w;
}

/// Is it for A2 = A3 only?
template <class S>
constexpr bool shares_source() {
  return requires { S::shared_source; };
}

template <class S>
Sources sources_of() {
  return shares_source<S>() ? Sources::shared : Sources::distinct;
}

/// Small enough that exp of an unshifted score stays finite.
template <class Operands>
constexpr double scale_of() {
  return std::same_as<Operands, schedule::ForwardOperands> || std::same_as<Operands, schedule::BackwardOperands> ? 0.7
                                                                                                                 : 0.15;
}

template <class T, class Operands>
struct Instance {
  Operands x;
  std::map<SlowArray, std::vector<T>> words;

  /// Copies of a partial array: as many as any tiling of a test asks for. A referee knows the right number.
  static constexpr index_t kCopies = 8;

  /// Inputs N(0, 1), then `change`d; O and lse as a forward pass leaves them; what was never written is NaN.
  template <class Change>
  Instance(const Sizes& shape, Sources sources, const Change& change, unsigned seed = 1)
      : x(shape, scale_of<Operands>()) {
    std::mt19937 gen(seed);
    std::normal_distribution<double> normal;
    for (const SlowMatrix& m : x.all()) {
      auto& v = words[m.array];
      const index_t copies = schedule::is_partial(m.array) ? kCopies : 1;
      v.assign(static_cast<std::size_t>(copies * m.shape.words()), std::numeric_limits<T>::quiet_NaN());
      if (is_input(m.array))
        for (T& word : v) word = static_cast<T>(normal(gen));
    }
    change(*this);
    if (sources != Sources::distinct) words[SlowArray::A3] = words[SlowArray::A2];
    if (follows_forward(operation_of<Operands>())) {
      const auto forward = forward_of(dense<long double>());
      for (const SlowArray a : {SlowArray::O, SlowArray::lse})
        std::transform(forward.at(a).words.begin(),
                       forward.at(a).words.begin() + static_cast<std::ptrdiff_t>(words[a].size()), words[a].begin(),
                       [](long double v) { return static_cast<T>(v); });
    }
  }
  explicit Instance(const Sizes& shape, Sources sources = Sources::distinct, unsigned seed = 1)
      : Instance(shape, sources, [](Instance&) {}, seed) {}

  static bool is_input(SlowArray a) {
    return std::find(Operands::inputs.begin(), Operands::inputs.end(), a) != Operands::inputs.end();
  }

  machine::SlowMemory slow() {
    machine::SlowMemory m;
    for (const SlowMatrix& s : x.all()) m[index_of(s.array)] = machine::Storage::matrix(words[s.array].data(), s.shape);
    return m;
  }

  template <class R>
  DenseMatrix<R> matrix(SlowArray a) const {
    const Shape s = schedule::matrix_of(x, a).shape;
    DenseMatrix<R> m(s.rows, s.cols);
    std::copy(words.at(a).begin(), words.at(a).end(), m.words.begin());
    return m;
  }
  /// The dense problem with these inputs.
  template <class R>
  DenseProblem<R> dense() const {
    DenseProblem<R> p{operation_of<Operands>(), x.shape, static_cast<R>(x.scale), {}};
    for (const SlowArray a : Operands::inputs)
      if (a != SlowArray::O && a != SlowArray::lse) p.in[a] = matrix<R>(a);
    return p;
  }
  /// What the outputs should be, in exact arithmetic as far as long double has it.
  Matrices<long double> wanted() const {
    const auto p = dense<long double>();
    return follows_forward(p.op) ? gradients_of(p) : forward_of(p);
  }
  /// What plain arithmetic in T makes of it.
  Matrices<T> naive() const {
    const auto p = dense<T>();
    if (!follows_forward(p.op)) return forward_of(p);
    return gradients_from_statistics(p, matrix<T>(SlowArray::O), matrix<T>(SlowArray::lse));
  }

  bool same_bits(const Instance& other) const {
    return std::all_of(words.begin(), words.end(), [&](const auto& entry) {
      const auto& [array, v] = entry;
      const auto& w = other.words.at(array);
      return v.empty() || std::memcmp(v.data(), w.data(), v.size() * sizeof(T)) == 0;
    });
  }
};

/// The largest absolute difference; infinity where NaN or infinities disagree.
template <class T, class R>
double largest_gap(const std::vector<T>& a, const std::vector<R>& b) {
  double most = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (static_cast<R>(a[i]) == b[i]) continue;
    const double gap = std::abs(static_cast<double>(static_cast<long double>(a[i]) - static_cast<long double>(b[i])));
    most = std::isfinite(gap) ? std::max(most, gap) : std::numeric_limits<double>::infinity();
  }
  return most;
}
template <class R>
double largest_entry(const DenseMatrix<R>& m) {
  double most = 0;
  for (const R v : m.words)
    if (std::isfinite(v)) most = std::max(most, static_cast<double>(std::abs(v)));
  return most;
}

/// A referee that knows the arrays of S with this tiling.
template <class S>
machine::Referee referee_for(const typename S::Operands& x, const typename S::Tiling& t, Words M) {
  using Operands = typename S::Operands;
  machine::Referee r(M);
  for (const SlowArray a : Operands::inputs) r.input(schedule::matrix_of(x, a));
  for (const SlowArray a : Operands::outputs) r.output(schedule::matrix_of(x, a));
  for (const SlowMatrix& m : schedule::workspace_of<S>(x, t)) r.workspace(m);
  return r;
}

}  // namespace redblue::test
