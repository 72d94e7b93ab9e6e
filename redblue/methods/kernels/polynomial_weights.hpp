#pragma once
#include "redblue/hardware/isa.hpp"
#include "redblue/kernels/softmax.hpp"
#include "redblue/methods/kernels/polynomial.hpp"

/// Weights p(s) of scores that are formed: of the keys of a chunk, which no state holds yet.
namespace redblue::kernel {

/// S <- p(S), 0 where hidden (-inf); den <- den + row sums of S.
struct PolynomialWeights {
  static constexpr index_t kMostDegree = Monomials::kMostDegree;
  static constexpr std::string_view name = "polynomial_weights";
  static constexpr std::array access{Access::update, Access::update};
  static constexpr std::array<std::string_view, 1 + kMostDegree + 1> parameter_names{
      "degree", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12"};
  auto parameters() {
    return std::tuple_cat(std::tie(degree), std::apply([](auto&... l) { return std::tie(l...); }, c));
  }
  index_t degree = 1;
  std::array<double, kMostDegree + 1> c{};

  PolynomialWeights() = default;
  explicit PolynomialWeights(const Polynomial& p) : degree(p.degree()) { std::copy(p.c.begin(), p.c.end(), c.begin()); }

  static constexpr bool fits(Shape S, Shape den) { return den == Shape{S.rows, 1}; }
  constexpr bool fits_monomials(Shape, Shape) const { return degree >= 1 && degree <= kMostDegree; }
  static constexpr index_t macs(Shape, Shape) { return 0; }
  template <class T>
  T weight(T s) const {
    if (s == kMinusInf<T>) return 0;
    T p = 0;
    for (index_t l = degree; l >= 0; --l) p = p * s + static_cast<T>(c[static_cast<std::size_t>(l)]);
    return p;
  }
  template <class T>
  void run(View<T> S, View<T> den) const {
    for (index_t i = 0; i < S.rows(); ++i)
      den[i] += sum_of<T>(S.cols(), [&](index_t j) { return S(i, j) = weight(S(i, j)); });
  }
};

/// num <- num + p(scale Q K^T) V, den <- den + row sums of these weights; those of hidden pairs are 0. S is for the
/// scores. A machine may run it as one implementation; the parts in this order define its result.
struct PolynomialAttention {
  static constexpr bool kComposite = true;
  static constexpr std::string_view name = "polynomial_attention";
  static constexpr std::array access{Access::write, Access::update, Access::update,
                                     Access::read,  Access::read,   Access::read};

  Scores scores;
  PolynomialWeights weights;
  template <class Visit, class A>
  void parts(const Visit& visit, const A& S_ij, const A& num_i, const A& den_i, const A& Q_i, const A& K_j,
             const A& V_j) const {
    visit(scores, S_ij, Q_i, K_j);
    visit(weights, S_ij, den_i);
    visit(Gemm{}, num_i, S_ij, V_j);
  }
  template <class T>
  static Implementation<T, PolynomialAttention> implementation(Isa isa);
};

}  // namespace redblue::kernel
