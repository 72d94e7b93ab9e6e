#pragma once
#include <span>

#include "redblue/schedules/operands/backward.hpp"
#include "redblue/schedules/operands/forward.hpp"
#include "redblue/schedules/parts/projections.hpp"

/// The operands of attention whose Q, K and V are projections, and of its gradients: what Projected puts products
/// before and after.
namespace redblue::schedule {

/// The operands of attention in the papers' parametrisation (Li et al. 2024, arXiv 2410.09397, Definition 3.1):
/// O = softmax(scale A1 X A2^T) A3 Y, A1 n_q x d, A2 and A3 n_k x d, X d x d, Y d x d_v -> O and lse as of
/// ForwardOperands. The rest is workspace that only schedules which declare it touch.
struct ForwardXOperands {
  static constexpr Operation operation = Operation::forward_x;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;
  static constexpr std::string_view prefix = "xy_";
  static constexpr std::array names = kProjected;
  static constexpr std::array workspace{SlowArray::A1X, SlowArray::h};
  static constexpr std::array projection_tile_sizes = kProjectionTileSizes;
  static constexpr std::array<TileSizeRange, 0> gradient_tile_sizes{};

  Sizes shape;
  double scale = 1;
  SlowMatrix A1, A2, A3, X, Y, O, lse;
  SlowMatrix S;       ///< A1 X
  SlowMatrix h;       ///< A3 Y
  SlowMatrix scores;  ///< a word for each query and key
  SlowMatrix U;       ///< softmax(scale S A2^T) A2, what Y projects to O when A2 = A3

  [[gnu::noinline]] ForwardXOperands(const Sizes& s, double score_scale, index_t instance = 0)
      : shape(s),
        scale(score_scale),
        A1{SlowArray::A1, {s.n_q, s.d}, instance, s.row0},
        A2{SlowArray::A2, {s.n_k, s.d}, instance, s.key0},
        A3{SlowArray::A3, {s.n_k, s.d}, instance, s.key0},
        X{SlowArray::X, {s.d, s.d}, instance},
        Y{SlowArray::Y, {s.d, s.d_v}, instance},
        O{SlowArray::O, {s.n_q, s.d_v}, instance, s.row0},
        lse{SlowArray::lse, {s.n_q, s.statistics()}, instance, s.row0},
        S{SlowArray::A1X, {s.n_q, s.d}, instance, s.row0},
        h{SlowArray::h, {s.n_k, s.d_v}, instance, s.key0},
        scores(matrix_of_pairs(s, SlowArray::S, instance)),
        U{SlowArray::U, {s.n_q, s.d}, instance, s.row0} {}

  index_t instance() const { return A1.instance; }
  auto all() const { return std::array{A1, A2, A3, X, Y, O, lse, S, h, scores, U}; }

  std::array<Product, 2> projections() const { return {query_projection(*this), value_projection(*this)}; }
  static std::array<Product, 0> gradients() { return {}; }
  /// The operands of plain attention once the projections are formed: Q = S, K = A2, V = h.
  struct Attention : ForwardOperands {
    Attention(const Sizes& s, double scale, index_t instance = 0) : ForwardOperands(s, scale, instance) {
      Q.array = SlowArray::A1X;
      K.array = SlowArray::A2;
      V.array = SlowArray::h;
    }
  };
  Attention attention() const { return {renamed(shape, names), scale, A1.instance}; }
};

/// Q = A1 X, K = A2, V = A3 Y: the operands of ForwardXOperands, its O and lse, and dO -> dX = A1^T U, dA1 = U X^T,
/// dA2, dY = A3^T dh, dA3 = dh Y^T, where U = dS A2 is dQ and dh is dV (Li et al. 2024, arXiv 2410.09397, give dX).
///   reads R_mm(n_q, d, d) + R_mm(n_k, d, d_v) + those of S + R_mm(d, n_q, d) + R_mm(n_q, d, d) + R_mm(d, n_k, d_v)
///         + R_mm(n_k, d_v, d)
///   writes n_q d + n_k d_v + those of S + d^2 + n_q d + d d_v + n_k d
struct BackwardXOperands {
  static constexpr Operation operation = Operation::backward_x;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;
  static constexpr std::string_view prefix = "xy_";
  static constexpr std::array names = std::array{kProjected[0],
                                                 kProjected[1],
                                                 kProjected[2],
                                                 Renaming{SlowArray::dQ, SlowArray::U},
                                                 Renaming{SlowArray::dK, SlowArray::dA2},
                                                 Renaming{SlowArray::dV, SlowArray::dh}};
  static constexpr std::array workspace{SlowArray::A1X, SlowArray::h, SlowArray::U, SlowArray::dh};
  static constexpr std::array projection_tile_sizes = kProjectionTileSizes;
  static constexpr std::array gradient_tile_sizes{
      TileSizeRange{"dX.b1", &Sizes::d},    TileSizeRange{"dX.b2", &Sizes::d}, TileSizeRange{"dA1.b1", &Sizes::n_q},
      TileSizeRange{"dA1.b2", &Sizes::d},   TileSizeRange{"dY.b1", &Sizes::d}, TileSizeRange{"dY.b2", &Sizes::d_v},
      TileSizeRange{"dA3.b1", &Sizes::n_k}, TileSizeRange{"dA3.b2", &Sizes::d}};

  Sizes shape;
  double scale = 1;
  SlowMatrix A1, A2, A3, X, Y, O, lse, dO;
  SlowMatrix dX, dY, dA1, dA2, dA3;
  SlowMatrix S, h, U, dh, D, P;

  [[gnu::noinline]] BackwardXOperands(const Sizes& s, double score_scale, index_t instance = 0)
      : shape(s),
        scale(score_scale),
        A1{SlowArray::A1, {s.n_q, s.d}, instance, s.row0},
        A2{SlowArray::A2, {s.n_k, s.d}, instance, s.key0},
        A3{SlowArray::A3, {s.n_k, s.d}, instance, s.key0},
        X{SlowArray::X, {s.d, s.d}, instance},
        Y{SlowArray::Y, {s.d, s.d_v}, instance},
        O{SlowArray::O, {s.n_q, s.d_v * s.statistics()}, instance, s.row0},
        lse{SlowArray::lse, {s.n_q, s.statistics()}, instance, s.row0},
        dO{SlowArray::dO, {s.n_q, s.d_v}, instance, s.row0},
        dX{SlowArray::dX, X.shape, instance},
        dY{SlowArray::dY, Y.shape, instance},
        dA1{SlowArray::dA1, A1.shape, instance, s.row0},
        dA2{SlowArray::dA2, A2.shape, instance, s.key0},
        dA3{SlowArray::dA3, A3.shape, instance, s.key0},
        S{SlowArray::A1X, {s.n_q, s.d}, instance, s.row0},
        h{SlowArray::h, {s.n_k, s.d_v}, instance, s.key0},
        U{SlowArray::U, S.shape, instance, s.row0},
        dh{SlowArray::dh, h.shape, instance, s.key0},
        D{SlowArray::D, {s.n_q, s.statistics()}, instance, s.row0},
        P(matrix_of_pairs(s, SlowArray::P, instance)) {}

  index_t instance() const { return A1.instance; }
  auto all() const { return std::array{A1, A2, A3, X, Y, O, lse, dO, dX, dY, dA1, dA2, dA3, S, h, U, dh, D, P}; }

  std::array<Product, 2> projections() const { return {query_projection(*this), value_projection(*this)}; }
  /// The operands of plain attention in between: Q = S, K = A2, V = h; dQ = U, dK = dA2, dV = dh.
  struct Attention : BackwardOperands {
    static constexpr std::array outputs{SlowArray::U, SlowArray::dA2, SlowArray::dh};
    Attention(const Sizes& s, double scale, index_t instance = 0) : BackwardOperands(s, scale, instance) {
      Q.array = SlowArray::A1X;
      K.array = SlowArray::A2;
      V.array = SlowArray::h;
      dQ.array = SlowArray::U;
      dK.array = SlowArray::dA2;
      dV.array = SlowArray::dh;
    }
  };
  Attention attention() const { return {renamed(shape, names), scale, A1.instance}; }
  std::array<Product, 4> gradients() const {
    constexpr auto query = &Multiples::query, key = &Multiples::key, feature = &Multiples::feature;
    return {Product{dX, transposed(A1), {U}, feature, feature}, Product{dA1, {U}, transposed(X), query, feature},
            Product{dY, transposed(A3), {dh}, feature, feature}, Product{dA3, {dh}, transposed(Y), key, feature}};
  }
};

/// Q = A1 WQ, K = A2 WK, V = A3 WV: A1 n_q x d_in, A2 and A3 n_k x d_in, WQ and WK d_in x d, WV d_in x d_v -> the
/// gradient of each. Six products after those of S: leading 12 n d d_in/sqrt(M).
///   reads R_mm(n_q, d_in, d) + R_mm(n_k, d_in, d) + R_mm(n_k, d_in, d_v) + those of S + R_mm(d_in, n_q, d)
///         + R_mm(n_q, d, d_in) + R_mm(d_in, n_k, d) + R_mm(n_k, d, d_in) + R_mm(d_in, n_k, d_v) + R_mm(n_k, d_v, d_in)
///   writes n_q d + n_k (d + d_v) + those of S + d_in (2 d + d_v) + (n_q + 2 n_k) d_in
struct BackwardWOperands {
  static constexpr Operation operation = Operation::backward_w;
  static constexpr std::span<const SlowArray> inputs = facts_of(operation).reads;
  static constexpr std::span<const SlowArray> outputs = facts_of(operation).writes;
  static constexpr std::string_view prefix = "qkv_";
  static constexpr std::array<Renaming, 0> names{};
  static constexpr std::array workspace{SlowArray::Q,  SlowArray::K,  SlowArray::V,
                                        SlowArray::dQ, SlowArray::dK, SlowArray::dV};
  static constexpr std::array projection_tile_sizes{
      TileSizeRange{"Q.b1", &Sizes::n_q}, TileSizeRange{"Q.b2", &Sizes::d},   TileSizeRange{"K.b1", &Sizes::n_k},
      TileSizeRange{"K.b2", &Sizes::d},   TileSizeRange{"V.b1", &Sizes::n_k}, TileSizeRange{"V.b2", &Sizes::d_v}};
  static constexpr std::array gradient_tile_sizes{
      TileSizeRange{"dWQ.b1", &Sizes::d_in}, TileSizeRange{"dWQ.b2", &Sizes::d},
      TileSizeRange{"dA1.b1", &Sizes::n_q},  TileSizeRange{"dA1.b2", &Sizes::d_in},
      TileSizeRange{"dWK.b1", &Sizes::d_in}, TileSizeRange{"dWK.b2", &Sizes::d},
      TileSizeRange{"dA2.b1", &Sizes::n_k},  TileSizeRange{"dA2.b2", &Sizes::d_in},
      TileSizeRange{"dWV.b1", &Sizes::d_in}, TileSizeRange{"dWV.b2", &Sizes::d_v},
      TileSizeRange{"dA3.b1", &Sizes::n_k},  TileSizeRange{"dA3.b2", &Sizes::d_in}};

  Sizes shape;
  double scale = 1;
  SlowMatrix A1, A2, A3, WQ, WK, WV, dWQ, dWK, dWV, dA1, dA2, dA3;

  [[gnu::noinline]] BackwardWOperands(const Sizes& s, double score_scale, index_t instance = 0)
      : shape(s),
        scale(score_scale),
        A1{SlowArray::A1, {s.n_q, s.d_in}, instance, s.row0},
        A2{SlowArray::A2, {s.n_k, s.d_in}, instance, s.key0},
        A3{SlowArray::A3, {s.n_k, s.d_in}, instance, s.key0},
        WQ{SlowArray::WQ, {s.d_in, s.d}, instance},
        WK{SlowArray::WK, {s.d_in, s.d}, instance},
        WV{SlowArray::WV, {s.d_in, s.d_v}, instance},
        dWQ{SlowArray::dWQ, WQ.shape, instance},
        dWK{SlowArray::dWK, WK.shape, instance},
        dWV{SlowArray::dWV, WV.shape, instance},
        dA1{SlowArray::dA1, A1.shape, instance, s.row0},
        dA2{SlowArray::dA2, A2.shape, instance, s.key0},
        dA3{SlowArray::dA3, A3.shape, instance, s.key0} {}

  index_t instance() const { return A1.instance; }
  auto all() const {
    const BackwardOperands x = attention();
    return std::array{A1,  A2,  A3,  WQ,  WK,    WV,   dWQ,  dWK,  dWV,  dA1, dA2, dA3,
                      x.Q, x.K, x.V, x.O, x.lse, x.dO, x.dQ, x.dK, x.dV, x.D, x.P};
  }

  using Attention = BackwardOperands;
  Attention attention() const { return {shape, scale, A1.instance}; }
  std::array<Product, 3> projections() const {
    const BackwardOperands x = attention();
    constexpr auto query = &Multiples::query, key = &Multiples::key, feature = &Multiples::feature;
    return {Product{x.Q, {A1}, {WQ}, query, feature}, Product{x.K, {A2}, {WK}, key, feature},
            Product{x.V, {A3}, {WV}, key, feature}};
  }
  std::array<Product, 6> gradients() const {
    const BackwardOperands x = attention();
    constexpr auto query = &Multiples::query, key = &Multiples::key, feature = &Multiples::feature;
    return {
        Product{dWQ, transposed(A1), {x.dQ}, feature, feature}, Product{dA1, {x.dQ}, transposed(WQ), query, feature},
        Product{dWK, transposed(A2), {x.dK}, feature, feature}, Product{dA2, {x.dK}, transposed(WK), key, feature},
        Product{dWV, transposed(A3), {x.dV}, feature, feature}, Product{dA3, {x.dV}, transposed(WV), key, feature}};
  }
};

}  // namespace redblue::schedule
