#include <gtest/gtest.h>

#include <cmath>

#include "kernel/tiles.hpp"

/// Sums over thousands of keys or queries, step by step as a schedule forms them, on every instruction set. The rule:
/// a kernel's error against fp64 is at most twice that of plain fp32 arithmetic whose sums over keys and queries are
/// formed 256 terms at a time. One chain of additions fails it.
namespace redblue::kernel {
namespace {

constexpr index_t kFeatures = 64, kLong = 8192;
constexpr double kScale = 0.125;

using Words = Matrix<float>;

/// f(0) + .. + f(n - 1) in T, 256 terms at a time.
template <class T, class F>
T blocked(index_t n, const F& f) {
  T total = 0;
  for (index_t first = 0; first < n; first += 256) {
    T block = 0;
    for (index_t i = first; i < std::min<index_t>(n, first + 256); ++i) block += f(i);
    total += block;
  }
  return total;
}
template <class T>
T in(Words& m, index_t i, index_t j) {
  return static_cast<T>(m.view()(i, j));
}

/// A B, A(i, t) being a(i, t).
template <class T, class F>
Matrix<T> product(index_t rows, Words& B, const F& a) {
  Matrix<T> C({rows, B.shape.cols});
  for (index_t i = 0; i < rows; ++i)
    for (index_t j = 0; j < B.shape.cols; ++j)
      C.view()(i, j) = blocked<T>(B.shape.rows, [&](index_t t) { return a(i, t) * in<T>(B, t, j); });
  return C;
}
/// A B^T
template <class T>
Matrix<T> products_of_rows(Words& A, Words& B) {
  Matrix<T> C({A.shape.rows, B.shape.rows});
  for (index_t i = 0; i < A.shape.rows; ++i)
    for (index_t j = 0; j < B.shape.rows; ++j)
      C.view()(i, j) = blocked<T>(A.shape.cols, [&](index_t t) { return in<T>(A, i, t) * in<T>(B, j, t); });
  return C;
}

/// The largest difference over the largest entry.
template <class A>
double error(Matrix<A> x, Matrix<double> exact) {
  double most = 0, size = 0;
  for (index_t i = 0; i < x.shape.rows; ++i)
    for (index_t j = 0; j < x.shape.cols; ++j) {
      most = std::max(most, std::abs(static_cast<double>(x.view()(i, j)) - exact.view()(i, j)));
      size = std::max(size, std::abs(exact.view()(i, j)));
    }
  return most / size;
}
/// A result in fp64, and what plain fp32 makes of it.
struct Yardstick {
  Matrix<double> exact;
  double plain;
  Yardstick(const Matrix<double>& f64, const Matrix<float>& f32) : exact(f64), plain(error(f32, f64)) {}
};
void expect_as_exact(const Words& x, const Yardstick& y, const char* what) {
  EXPECT_LE(error(x, y.exact), 2 * y.plain) << what;
}

/// Plain attention: O and lse.
template <class T>
struct Plain {
  Matrix<T> O, lse;
  Plain(Words& Q, Words& K, Words& V) : O({Q.shape.rows, V.shape.cols}), lse({Q.shape.rows, 1}) {
    Matrix<T> P = products_of_rows<T>(Q, K);
    for (index_t i = 0; i < Q.shape.rows; ++i) {
      const auto p = [&](index_t j) -> T& { return P.view()(i, j); };
      T most = p(0) *= T(kScale);
      for (index_t j = 1; j < K.shape.rows; ++j) most = std::max(most, p(j) *= T(kScale));
      for (index_t j = 0; j < K.shape.rows; ++j) p(j) = std::exp(p(j) - most);
      const T sum = blocked<T>(K.shape.rows, p);
      lse.view()(i, 0) = most + std::log(sum);
      for (index_t j = 0; j < K.shape.rows; ++j) p(j) /= sum;
    }
    O = product<T>(Q.shape.rows, V, [&](index_t i, index_t j) { return P.view()(i, j); });
  }
};

/// Plain gradients of keys, given lse and D.
template <class T>
struct PlainGradients {
  Matrix<T> dK, dV;
  PlainGradients(Words& Q, Words& K, Words& V, Words& dO, Words& lse, Words& D)
      : dK({K.shape.rows, K.shape.cols}), dV({V.shape.rows, V.shape.cols}) {
    Matrix<T> P = products_of_rows<T>(Q, K), dS = products_of_rows<T>(dO, V);
    for (index_t i = 0; i < Q.shape.rows; ++i)
      for (index_t j = 0; j < K.shape.rows; ++j) {
        P.view()(i, j) = std::exp(T(kScale) * P.view()(i, j) - in<T>(lse, i, 0));
        dS.view()(i, j) = T(kScale) * P.view()(i, j) * (dS.view()(i, j) - in<T>(D, i, 0));
      }
    dV = product<T>(K.shape.rows, dO, [&](index_t j, index_t i) { return P.view()(i, j); });
    dK = product<T>(K.shape.rows, Q, [&](index_t j, index_t i) { return dS.view()(i, j); });
  }
};

View<float> rows(Words& m, index_t first, index_t count) {
  return {&m.view()(first, 0), {count, m.shape.cols}, m.stride};
}
View<float> columns(View<float> m, index_t count) {
  m.shape.cols = count;
  return m;
}

template <class F>
void on_every_isa(const F& f) {
  for (const Isa isa : kIsas) {
    if (!is_available(isa)) continue;
    SCOPED_TRACE(name_of(isa));
    f(bodies<float>(isa));
  }
}

class LongSums : public testing::Test {
 protected:
  std::mt19937 random{20261122};
  Words draw(index_t rows, index_t cols, double size = 1) { return Words({rows, cols}, random, size); }
};

TEST_F(LongSums, OfValuesAndWeights) {
  for (const index_t queries : {3, 50}) {  // few queries have bodies of their own
    SCOPED_TRACE(queries);
    Words Q = draw(queries, kFeatures), K = draw(kLong, kFeatures), V = draw(kLong, kFeatures);
    const Plain<double> exact(Q, K, V);
    const Plain<float> plain(Q, K, V);
    on_every_isa([&](const Bodies<float>& table) {
      for (const index_t step : {128, 2048}) {
        SCOPED_TRACE(step);
        Words m({queries, 1}), l({queries, 1});
        Laid<float> fast_Q(table, Q, OnlineAttention::Q), O(table, Words({queries, kFeatures}), OnlineAttention::O);
        Laid<float> S(table, Words({queries, step}), OnlineAttention::S);
        run<float>(table, SoftmaxInit{}, std::array{O.view, m.view(), l.view()});
        for (index_t j = 0; j < kLong; j += step)
          run<float>(table, OnlineAttention{{kScale, {}, 0, j}},
                     std::array{columns(S.view, step), O.view, m.view(), l.view(), fast_Q.view, rows(K, j, step),
                                rows(V, j, step)});
        run<float>(table, SoftmaxFinish{}, std::array{O.view, m.view(), l.view()});
        expect_as_exact(O.plain(table), {exact.O, plain.O}, "O");
        expect_as_exact(m, {exact.lse, plain.lse}, "lse");
      }
    });
  }
}

TEST_F(LongSums, OfGradientsOfKeys) {
  constexpr index_t kKeys = 50, kStep = 192;
  Words Q = draw(kLong, kFeatures), K = draw(kKeys, kFeatures), V = draw(kKeys, kFeatures);
  Words dO = draw(kLong, kFeatures), lse = draw(kLong, 1, 0.1), D = draw(kLong, 1);
  for (float& x : lse.words) x += 4;
  const PlainGradients<double> exact(Q, K, V, dO, lse, D);
  const PlainGradients<float> plain(Q, K, V, dO, lse, D);
  on_every_isa([&](const Bodies<float>& table) {
    Words dK({kKeys, kFeatures}), dV({kKeys, kFeatures});
    Laid<float> fast_K(table, K, KeyGradients::K), fast_V(table, V, KeyGradients::V);
    for (index_t i = 0; i < kLong; i += kStep) {
      const index_t queries = std::min(kStep, kLong - i);
      Laid<float> P(table, Words({queries, kKeys}), KeyGradients::P),
          dS(table, Words({queries, kKeys}), KeyGradients::dS);
      run<float>(table, KeyGradients{{kScale, {}, i, 0}},
                 std::array{P.view, dS.view, dK.view(), dV.view(), rows(Q, i, queries), fast_K.view, fast_V.view,
                            rows(lse, i, queries), rows(D, i, queries), rows(dO, i, queries)});
    }
    expect_as_exact(dV, {exact.dV, plain.dV}, "dV");
    expect_as_exact(dK, {exact.dK, plain.dK}, "dK");
  });
}

/// dQ = dS K: in steps as a schedule has them, and in one call.
TEST_F(LongSums, OfProducts) {
  constexpr index_t kRows = 20;
  Words A = draw(kRows, kLong), At({kLong, kRows}), B = draw(kLong, kFeatures);
  for (float& x : A.words) x = std::abs(x);
  for (index_t i = 0; i < kRows; ++i)
    for (index_t t = 0; t < kLong; ++t) At.view()(t, i) = A.view()(i, t);
  const Yardstick C(product<double>(kRows, B, [&](index_t i, index_t t) { return in<double>(A, i, t); }),
                    product<float>(kRows, B, [&](index_t i, index_t t) { return in<float>(A, i, t); }));
  on_every_isa([&](const Bodies<float>& table) {
    for (const index_t step : {128, 784, 8192})
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(testing::Message() << step << (transposed ? " transposed" : ""));
        Words sum({kRows, kFeatures}), over({kRows, kFeatures});
        for (index_t t = 0; t < kLong; t += step) {
          const index_t depth = std::min(step, kLong - t);
          View<float> a = transposed ? rows(At, t, depth) : columns(A.view(), depth);
          if (!transposed) a.data += t;
          const View<float> b = rows(B, t, depth);
          run<float>(table, Gemm{transposed, false}, std::array{sum.view(), a, b});
          run<float>(table, GemmOver{transposed, false, t == 0}, std::array{over.view(), a, b});
        }
        expect_as_exact(sum, C, "gemm");
        expect_as_exact(over, C, "gemm_over");
      }
  });
}

}  // namespace
}  // namespace redblue::kernel
