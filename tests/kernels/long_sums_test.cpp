#include <gtest/gtest.h>

#include <cmath>

#include "kernels/tiles.hpp"
#include "redblue/verify/oracle/dense.hpp"

/// Sums over thousands of keys or queries, step by step as a schedule forms them, on every instruction set. The rule:
/// a kernel's error against fp64 is at most twice that of plain fp32 arithmetic whose sums over keys and queries are
/// formed 256 terms at a time. One chain of additions fails it.
namespace redblue::kernel {
namespace {

constexpr index_t kFeatures = 64, kLong = 8192;
constexpr double kScale = 0.125;

using Words = Matrix<float>;

/// The same numbers in T.
template <class T>
oracle::Matrix<T> in(Words& m) {
  oracle::Matrix<T> x(m.shape);
  for (index_t i = 0; i < m.shape.rows; ++i)
    for (index_t j = 0; j < m.shape.cols; ++j) x(i, j) = static_cast<T>(m.view()(i, j));
  return x;
}

/// The largest difference over the largest entry.
template <class T>
double error(const oracle::Matrix<T>& x, const oracle::Matrix<double>& exact) {
  double most = 0, size = 0;
  for (std::size_t i = 0; i < x.words.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(x.words[i]) - exact.words[i]));
    size = std::max(size, std::abs(exact.words[i]));
  }
  return most / size;
}
/// A result in fp64, and what plain fp32 makes of it.
struct Yardstick {
  oracle::Matrix<double> exact;
  double plain;
  Yardstick(const oracle::Matrix<double>& f64, const oracle::Matrix<float>& f32) : exact(f64), plain(error(f32, f64)) {}
};
void expect_as_exact(Words x, const Yardstick& y, const char* what) {
  EXPECT_LE(error(in<float>(x), y.exact), 2 * y.plain) << what;
}

/// Plain attention in T.
template <class T>
oracle::Dense<T> plain(Operation op, std::map<SlowArray, Words> inputs) {
  Problem p;
  p.op = op;
  p.n_q = inputs.at(SlowArray::Q).shape.rows;
  p.n_k = inputs.at(SlowArray::K).shape.rows;
  p.d = p.d_v = kFeatures;
  p.scale = kScale;
  oracle::Matrices<T> x;
  for (auto& [array, m] : inputs) x[array] = in<T>(m);
  return {p, x, kPiece};
}

View<float> rows(Words& m, index_t first, index_t count) {
  return {&m.view()(first, 0), {count, m.shape.cols}, m.stride};
}
View<float> columns(View<float> m, index_t count) {
  m.shape.cols = count;
  return m;
}

class LongSums : public testing::Test {
 protected:
  std::mt19937 random{20261122};
  Words draw(index_t rows, index_t cols, double size = 1) { return Words({rows, cols}, random, size); }
};

TEST_F(LongSums, OfValuesAndWeights) {
  for (const index_t queries : {3, 50}) {  // few queries have implementations of their own
    SCOPED_TRACE(queries);
    Words Q = draw(queries, kFeatures), K = draw(kLong, kFeatures), V = draw(kLong, kFeatures);
    const std::map<SlowArray, Words> inputs{{SlowArray::Q, Q}, {SlowArray::K, K}, {SlowArray::V, V}};
    const auto f64 = plain<double>(Operation::forward, inputs).forward();
    const auto f32 = plain<float>(Operation::forward, inputs).forward();
    on_every_isa([&](const Implementations<float>& table) {
      for (const index_t step : {128, 2048}) {
        SCOPED_TRACE(step);
        Words m({queries, 1}), l({queries, 1});
        Laid<float> fast_Q(table, Q, OnlineAttention::Q), O(table, Words({queries, kFeatures}), OnlineAttention::O);
        Laid<float> S(table, Words({queries, step}), OnlineAttention::S);
        run<float>(table, SoftmaxInit{}, std::array{O.view, m.view(), l.view()});
        for (index_t j = 0; j < kLong; j += step)
          run<float>(table, OnlineAttention{{kScale, {.col = j}}},
                     std::array{columns(S.view, step), O.view, m.view(), l.view(), fast_Q.view, rows(K, j, step),
                                rows(V, j, step), View<float>(), View<float>()});
        run<float>(table, SoftmaxFinish{}, std::array{O.view, m.view(), l.view()});
        expect_as_exact(O.plain(table), {f64.at(SlowArray::O), f32.at(SlowArray::O)}, "O");
        expect_as_exact(m, {f64.at(SlowArray::lse), f32.at(SlowArray::lse)}, "lse");
      }
    });
  }
}

TEST_F(LongSums, OfGradientsOfKeys) {
  constexpr index_t kKeys = 50, kStep = 192;
  Words Q = draw(kLong, kFeatures), K = draw(kKeys, kFeatures), V = draw(kKeys, kFeatures);
  Words dO = draw(kLong, kFeatures), lse = draw(kLong, 1, 0.1), D = draw(kLong, 1);
  for (float& x : lse.words) x += 4;
  Words O({kLong, kFeatures});  // such that dO O = D exactly
  for (index_t i = 0; i < kLong; ++i) {
    dO.view()(i, 0) = 1;
    O.view()(i, 0) = D.view()(i, 0);
  }
  const std::map<SlowArray, Words> inputs{{SlowArray::Q, Q}, {SlowArray::K, K},   {SlowArray::V, V},
                                          {SlowArray::O, O}, {SlowArray::dO, dO}, {SlowArray::lse, lse}};
  const auto f64 = plain<double>(Operation::backward, inputs).gradients();
  const auto f32 = plain<float>(Operation::backward, inputs).gradients();
  on_every_isa([&](const Implementations<float>& table) {
    Words dK({kKeys, kFeatures}), dV({kKeys, kFeatures});
    Laid<float> fast_K(table, K, KeyGradients::K), fast_V(table, V, KeyGradients::V);
    for (index_t i = 0; i < kLong; i += kStep) {
      const index_t queries = std::min(kStep, kLong - i);
      Laid<float> P(table, Words({queries, kKeys}), KeyGradients::P),
          dS(table, Words({queries, kKeys}), KeyGradients::dS);
      run<float>(table, KeyGradients{{kScale, {.row = i}}},
                 std::array{P.view, dS.view, dK.view(), dV.view(), rows(Q, i, queries), fast_K.view, fast_V.view,
                            rows(lse, i, queries), rows(D, i, queries), rows(dO, i, queries), View<float>(),
                            View<float>(), View<float>(), View<float>()});
    }
    expect_as_exact(dV, {f64.at(SlowArray::dV), f32.at(SlowArray::dV)}, "dV");
    expect_as_exact(dK, {f64.at(SlowArray::dK), f32.at(SlowArray::dK)}, "dK");
  });
}

/// dQ = dS K: in steps as a schedule has them, and in one call.
TEST_F(LongSums, OfProducts) {
  constexpr index_t kRows = 20;
  Words A = draw(kRows, kLong), At({kLong, kRows}), B = draw(kLong, kFeatures);
  for (float& x : A.words) x = std::abs(x);
  for (index_t i = 0; i < kRows; ++i)
    for (index_t t = 0; t < kLong; ++t) At.view()(t, i) = A.view()(i, t);
  const Yardstick C(oracle::product(in<double>(A), in<double>(B), kPiece),
                    oracle::product(in<float>(A), in<float>(B), kPiece));
  on_every_isa([&](const Implementations<float>& table) {
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
