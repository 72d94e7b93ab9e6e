#pragma once
#include <algorithm>
#include <array>
#include <tuple>

#include "redblue/hardware/isa.hpp"
#include "redblue/kernels/dense.hpp"
#include "redblue/methods/maths/polynomial.hpp"

/// Kernels of polynomial attention. p(scale q.k) = SUM_a w_a q^a k^a over monomials a of degree at most g, with
/// w_a = c_|a| scale^|a| |a|!/a!. The state of the keys is Z_a = SUM_j k_j^a v_j and z_a = SUM_j k_j^a. Monomials are
/// formed by adding one coordinate after another, with one product each; the products on the way are the stack.
namespace redblue::kernel {

/// Some of the monomials in the coordinates of a tile: those in which each of its blocks of `block` coordinates occurs
/// (the last block may be smaller), in the order in which they are formed, from the one numbered `first` on; before
/// them the constant 1, if it is among them.
struct Monomials {
  static constexpr index_t kMostDegree = 12;
  static constexpr std::array<std::string_view, 6 + kMostDegree + 1> parameter_names{
      "degree", "block", "first", "constant", "weighted", "scale", "c0",  "c1",  "c2", "c3",
      "c4",     "c5",    "c6",    "c7",       "c8",       "c9",    "c10", "c11", "c12"};
  auto parameters() {
    return std::tuple_cat(std::tie(degree, block, first, constant, weighted, scale),
                          std::apply([](auto&... l) { return std::tie(l...); }, c));
  }
  index_t degree = 1;
  index_t block = 1;
  index_t first = 0;
  bool constant = true;
  bool weighted = false;  ///< times w_a; else times 1
  double scale = 1;
  std::array<double, kMostDegree + 1> c{};

  /// These monomials, weighted by the coefficients of a polynomial.
  Monomials times(const Polynomial& p, double by) const {
    Monomials m = *this;
    m.weighted = true;
    m.scale = by;
    std::copy(p.c.begin(), p.c.end(), m.c.begin());
    return m;
  }
  /// May it run with a stack of this many words and this many rows of a state?
  constexpr bool may_run(index_t words, index_t rows) const {
    return degree >= 1 && degree <= kMostDegree && words == degree && block >= 1 && first >= 0 &&
           rows >= (constant ? 1 : 0);
  }
};

namespace detail {

/// f(row of the state, x^a, its weight, coordinates, degree of a) for `rows` monomials of a row of X. The products on
/// the way to x^a are on the stack.
template <class T, class F>
class MonomialWalk {
 public:
  MonomialWalk(const Monomials& m, View<const T> x, index_t row, View<T> stack, index_t rows, const F& f)
      : m_(m), x_(x), row_(row), stack_(stack), end_(m.first + rows - (m.constant ? 1 : 0)), f_(f) {
    double power = 1;
    for (std::size_t l = 0; l < weight_.size(); ++l, power *= m.scale) weight_[l] = m.weighted ? m.c[l] * power : 1;
  }
  void operator()() {
    if (m_.constant) f_(0, T(1), static_cast<T>(weight_[0]), coordinates_, 0);
    if (x_.cols() > 0) extend(0, 0, 0, 1);
  }

 private:
  /// One more coordinate, from `from` on; it occurs `times` times already. `orders`: |a|!/a! so far.
  void extend(index_t level, index_t from, index_t times, double orders) {
    const index_t blocks = ceil_div(x_.cols(), m_.block);
    const index_t reached = level == 0 ? -1 : from / m_.block;
    const index_t to = std::min(x_.cols(), (reached + 2) * m_.block);  // no block may be passed over
    for (index_t t = from; t < to && next_ < end_; ++t) {
      const index_t missing = blocks - 1 - t / m_.block;
      if (missing > m_.degree - level - 1) continue;
      const T value = level == 0 ? x_(row_, t) : stack_[level - 1] * x_(row_, t);
      const index_t repeats = t == from ? times + 1 : 1;
      const double ways = orders * static_cast<double>(level + 1) / static_cast<double>(repeats);
      stack_[level] = value;
      coordinates_[static_cast<std::size_t>(level)] = t;
      if (missing == 0) {
        if (next_ >= m_.first)
          f_(next_ - m_.first + (m_.constant ? 1 : 0), value, weight(level + 1, ways), coordinates_, level + 1);
        ++next_;
      }
      if (level + 1 < m_.degree) extend(level + 1, t, repeats, ways);
    }
  }
  T weight(index_t degree, double ways) const {
    return m_.weighted ? static_cast<T>(weight_[static_cast<std::size_t>(degree)] * ways) : T(1);
  }

  const Monomials& m_;
  View<const T> x_;
  index_t row_;
  View<T> stack_;
  index_t next_ = 0, end_;
  const F& f_;
  std::array<double, Monomials::kMostDegree + 1> weight_{};
  std::array<index_t, Monomials::kMostDegree> coordinates_{};
};

template <class T, class F>
void for_monomials(const Monomials& m, View<const T> x, index_t row, View<T> stack, index_t rows, const F& f) {
  MonomialWalk<T, F>(m, x, row, stack, rows, f)();
}

/// Do a state Z, z of `cols` columns, a stack and rows X of coordinates go together?
constexpr bool fit_state(Shape Z, Shape z, Shape stack, index_t cols) {
  return Z.cols == cols && (z.words() == 0 || z == Shape{Z.rows, 1}) && stack.cols == 1 &&
         stack.rows <= Monomials::kMostDegree;
}

}  // namespace detail

/// Z_a <- Z_a + SUM_i x_i^a U_i, z_a <- z_a + SUM_i x_i^a u_i over rows i, u being 1 where it has no words; the
/// monomials of weighted ones times w_a. z has no column where these sums are not wanted.
struct AddMonomials : Monomials {
  static constexpr std::string_view name = "add_monomials";
  static constexpr std::array access{Access::update, Access::update, Access::write,
                                     Access::read,   Access::read,   Access::read};
  static constexpr bool fits(Shape Z, Shape z, Shape stack, Shape X, Shape U, Shape u) {
    return detail::fit_state(Z, z, stack, U.cols) && X.rows == U.rows && (u.words() == 0 || u == Shape{X.rows, 1});
  }
  constexpr bool fits_monomials(Shape Z, Shape, Shape stack, Shape, Shape, Shape) const {
    return may_run(stack.rows, Z.rows);
  }
  static constexpr index_t macs(Shape Z, Shape z, Shape, Shape X, Shape, Shape) {
    return X.rows * (Z.words() + z.words());
  }
  template <class T>
  void run(View<T> Z, View<T> z, View<T> stack, View<const T> X, View<const T> U, View<const T> u) const {
    for (index_t i = 0; i < X.rows(); ++i)
      detail::for_monomials(*this, X, i, stack, Z.rows(), [&](index_t a, T power, T w, const auto&, index_t) {
        const T x = w * power;
        for (index_t t = 0; t < Z.cols(); ++t) Z(a, t) += x * U(i, t);
        if (z.words() > 0) z[a] += u.words() > 0 ? x * u[i] : x;
      });
  }
  template <class T>
  static Implementation<T, AddMonomials> implementation(Isa isa);
};

/// O_i <- O_i + SUM_a x_i^a Z_a, den_i <- den_i + SUM_a x_i^a z_a, the monomials of weighted ones times w_a.
struct ApplyMonomials : Monomials {
  static constexpr std::string_view name = "apply_monomials";
  static constexpr std::array access{Access::update, Access::update, Access::write,
                                     Access::read,   Access::read,   Access::read};
  static constexpr bool fits(Shape O, Shape den, Shape stack, Shape X, Shape Z, Shape z) {
    return detail::fit_state(Z, z, stack, O.cols) && X.rows == O.rows &&
           (z.words() == 0 ? den.words() == 0 : den == Shape{X.rows, 1});
  }
  constexpr bool fits_monomials(Shape, Shape, Shape stack, Shape, Shape Z, Shape) const {
    return may_run(stack.rows, Z.rows);
  }
  static constexpr index_t macs(Shape, Shape, Shape, Shape X, Shape Z, Shape z) {
    return X.rows * (Z.words() + z.words());
  }
  template <class T>
  void run(View<T> O, View<T> den, View<T> stack, View<const T> X, View<const T> Z, View<const T> z) const {
    for (index_t i = 0; i < X.rows(); ++i)
      detail::for_monomials(*this, X, i, stack, Z.rows(), [&](index_t a, T power, T w, const auto&, index_t) {
        const T x = w * power;
        for (index_t t = 0; t < Z.cols(); ++t) O(i, t) += x * Z(a, t);
        if (z.words() > 0) den[i] += x * z[a];
      });
  }
  template <class T>
  static Implementation<T, ApplyMonomials> implementation(Isa isa);
};

/// dX_i <- dX_i + SUM_a (Z_a . U_i + z_a u_i) d(x_i^a)/dx_i, u being 1 where it has no words; the monomials of weighted
/// ones times w_a.
struct DifferentiateMonomials : Monomials {
  static constexpr std::string_view name = "differentiate_monomials";
  static constexpr std::array access{Access::update, Access::write, Access::read, Access::read,
                                     Access::read,   Access::read,  Access::read};
  static constexpr bool fits(Shape dX, Shape stack, Shape X, Shape Z, Shape z, Shape U, Shape u) {
    return detail::fit_state(Z, z, stack, U.cols) && dX == X && X.rows == U.rows &&
           (u.words() == 0 || u == Shape{X.rows, 1});
  }
  constexpr bool fits_monomials(Shape, Shape stack, Shape, Shape Z, Shape, Shape, Shape) const {
    return may_run(stack.rows, Z.rows);
  }
  static constexpr index_t macs(Shape, Shape, Shape X, Shape Z, Shape z, Shape, Shape) {
    return X.rows * (Z.words() + z.words());
  }
  template <class T>
  void run(View<T> dX, View<T> stack, View<const T> X, View<const T> Z, View<const T> z, View<const T> U,
           View<const T> u) const {
    for (index_t i = 0; i < X.rows(); ++i)
      detail::for_monomials(*this, X, i, stack, Z.rows(),
                            [&](index_t a, T, T w, const auto& coordinates, index_t degree) {
                              T rate = z.words() == 0 ? T(0) : u.words() > 0 ? z[a] * u[i] : z[a];
                              for (index_t t = 0; t < Z.cols(); ++t) rate += Z(a, t) * U(i, t);
                              rate *= w;
                              for (index_t p = degree - 1; p >= 0;
                                   --p) {  // the factors before p are on the stack, those after it in rate
                                const index_t t = coordinates[static_cast<std::size_t>(p)];
                                dX(i, t) += p > 0 ? rate * stack[p - 1] : rate;
                                rate *= X(i, t);
                              }
                            });
  }
};

/// For O = num / den: dO <- dO / den, the gradient of num, and den <- -(dO . O) / den, that of den.
struct DivisionGradients {
  static constexpr std::string_view name = "division_gradients";
  static constexpr std::array access{Access::update, Access::update, Access::read};
  static constexpr bool fits(Shape dO, Shape den, Shape num) { return dO == num && den == Shape{dO.rows, 1}; }
  static constexpr index_t macs(Shape dO, Shape, Shape) { return dO.words(); }
  template <class T>
  void run(View<T> dO, View<T> den, View<const T> num) const {
    for (index_t i = 0; i < dO.rows(); ++i) {
      const T sum = den[i];
      T D = 0;
      for (index_t t = 0; t < dO.cols(); ++t) {
        dO(i, t) /= sum;
        D += dO(i, t) * num(i, t);
      }
      den[i] = -D / sum;
    }
  }
};

}  // namespace redblue::kernel
