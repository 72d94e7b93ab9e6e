#pragma once
#include <algorithm>
#include <array>
#include <optional>

#include "redblue/schedule.hpp"
#include "redblue/schedules.hpp"  // product with one resident tile (schedules/parts/gemm.hpp)

namespace redblue::schedule {

/// Attention for M < d^2 whose two products, scores and output, are those of Strassen (1969): seven products of halves
/// take the place of eight, `levels` times over, and the smallest ones are formed with one resident tile each. Sums of
/// blocks, and products of sums, go through slow memory in one pass a level. To leading order, n far larger than d, it
/// moves (7/4)^levels n^2 (25/3 + 4 d / (2^levels sqrt(M))) words.
/// It adds entries of different rows before it multiplies them, so it is outside class PA (docs/proofs/class-pa.md),
/// and the bounds of that class are none for it: it is chosen only when asked for by name.
struct StrassenForward : Defaults {
  /// A1, A2 and A3 have sums of blocks of Q, K and V; P the products that scores are sums of, later sums of blocks of
  /// weights; Og the products that O is sums of.
  struct Operands : ForwardOperands {
    SlowMatrix A1, A2, A3, P;

    Operands(const Sizes& s, double factor, index_t instance = 0)
        : ForwardOperands(s, factor, instance),
          A1(room(SlowArray::A1, Q)),
          A2(room(SlowArray::A2, K)),
          A3(room(SlowArray::A3, V)),
          P(room(SlowArray::P, S)) {
      Og = room(SlowArray::Og, O);
    }
    auto all() const { return std::array{Q, K, V, O, lse, S, A1, A2, A3, P, Og}; }

    /// Seven parts of each level that a matrix may have lie below each other.
    static SlowMatrix room(SlowArray array, const SlowMatrix& whole) {
      SlowMatrix m{array, {0, half(whole.shape).cols}, whole.instance};
      for (Shape s = whole.shape; std::min(s.rows, s.cols) > 1;) {
        s = half(s);
        m.shape.rows += 7 * s.rows;
      }
      return m;
    }
  };

  static constexpr std::string_view name = "strassen";
  static constexpr std::string_view idea = "forming scores and output by the products of Strassen";
  static constexpr Traits traits{.stable = false, .keeps_scores = true};
  static constexpr std::array workspace{SlowArray::S,  SlowArray::A1, SlowArray::A2,
                                        SlowArray::A3, SlowArray::P,  SlowArray::Og};

  struct Tiling {
    index_t levels = 1;  ///< of the recursion
    index_t width = 1;   ///< words of a row that are added at a time
    GemmTiling scores{}, output{};
    void tile_sizes(const auto& tile_size) {
      tile_size({.name = "levels", .most = 16}, levels);
      tile_size({"width"}, width);
      tile_size({"a", &Sizes::n_q}, scores.b1);
      tile_size({"b", &Sizes::n_k}, scores.b2);
      tile_size({"a2", &Sizes::n_q}, output.b1);
      tile_size({"c2", &Sizes::d_v}, output.b2);
    }
  };

  static index_t shortest(const Sizes& x) { return std::min({x.n_q, x.n_k, x.d, x.d_v}); }
  static std::optional<std::string_view> unsupported(const Sizes& x) {
    if (shortest(x) >= 2) return std::nullopt;
    return "halves matrices: it needs two or more queries, keys, and columns of Q and V";
  }
  static bool allows(const Sizes& x, Tiling t) { return shortest(x) >> t.levels > 0; }
  static constexpr std::string_view caveat(const Sizes&, Tiling) {
    return "sums of scores are rounded, too, and the bounds of class PA do not hold for it";
  }

  // ---- costs: each product is seven of its halves, and passes over its matrices and theirs ----

  static constexpr index_t half(index_t n) { return ceil_div(n, 2); }
  static constexpr Shape half(Shape s) { return {half(s.rows), half(s.cols)}; }

  /// C (m x n) = A (m x k) B (k x n), or B^T for B; parts lie in the arrays c, a, b.
  struct Product {
    SlowArray C, c, A, a, B, b;
    index_t m, k, n;
    bool transposed;
    Words beside_A{}, beside_C{};  ///< statistics that are resident while A is split, and C joined

    Product part() const { return {c, c, a, a, b, b, half(m), half(k), half(n), transposed}; }
    GemmCost plain() const { return {C, A, B, m, k, n}; }
    Io io(index_t levels, GemmTiling t) const {
      if (levels == 0) return plain().io(t);
      const Product p = part();
      return Io().read(A, Words(m) * k)
                 .write(a, 7 * Words(p.m) * p.k)
                 .read(B, Words(k) * n)
                 .write(b, 7 * Words(p.k) * p.n)
                 .read(c, 7 * Words(p.m) * p.n)
                 .write(C, Words(m) * n) +
             Words(7) * p.io(levels - 1, t);
    }
    Words macs(index_t levels) const { return levels == 0 ? plain().macs() : 7 * part().macs(levels - 1); }
    /// The most words resident, or with second buffers.
    Words peak(const Sizes& x, index_t levels, index_t width, GemmTiling t, bool buffers) const {
      const auto of = [&](const Phase& p) { return p.footprint + (buffers ? p.prefetch : Words(0)); };
      if (levels == 0) return of(plain().phase(x, t));
      const auto pass = [&](SlowArray from, SlowArray to, index_t sums, index_t cols) {
        const index_t w = std::min(width, half(cols));
        return of({x.tile(to, sums, w) + x.tile(from, 1, w), x.tile(from, 1, w)});
      };
      return std::max({beside_A + pass(A, a, 7, k), pass(B, b, 7, transposed ? k : n), beside_C + pass(c, C, 4, n),
                       part().peak(x, levels - 1, width, t, buffers)});
    }
  };
  static Product scores_product(const Sizes& x) {
    using enum SlowArray;
    return {S, P, Q, A1, K, A2, x.n_q, x.d, x.n_k, true, 0, 2 * x.tile(lse, 2, 1)};
  }
  static Product output_product(const Sizes& x) {
    using enum SlowArray;
    return {O, Og, S, P, V, A3, x.n_q, x.n_k, x.d_v, false, x.tile(lse, 2, 1)};
  }
  static Words peak(const Sizes& x, Tiling t, bool buffers) {
    return std::max(scores_product(x).peak(x, t.levels, t.width, t.scores, buffers),
                    output_product(x).peak(x, t.levels, t.width, t.output, buffers));
  }
  static Words footprint(const Sizes& x, Tiling t) { return peak(x, t, false); }
  static Words prefetch(const Sizes& x, Tiling t) { return peak(x, t, true) - peak(x, t, false); }
  static Io io(const Sizes& x, Tiling t) {
    return scores_product(x).io(t.levels, t.scores) + output_product(x).io(t.levels, t.output) +
           Io().write(SlowArray::lse, x.n_q).read(SlowArray::lse, x.n_q);
  }
  static Words macs(const Sizes& x, Tiling t) {
    return scores_product(x).macs(t.levels) + output_product(x).macs(t.levels);
  }

  static Tiling smallest(const Sizes& x, const Multiples& m) {
    const index_t q = smallest_tile(x.n_q, m.query);
    return {1, 1, {q, smallest_tile(x.n_k, m.key)}, {q, smallest_tile(x.d_v, m.feature)}};
  }
  /// The best tiles of the smallest products, at the number of levels that moves the fewest words.
  static std::optional<Tiling> choose_tiling(const Sizes& x, const Limits& limits) {
    std::optional<Tiling> best;
    Words least;
    Product scores = scores_product(x), output = output_product(x);
    for (Tiling t; allows(x, t); ++t.levels) {
      scores = scores.part();
      output = output.part();
      const Multiples& step = limits.multiple;
      const auto a = scores.plain().choose(x, limits, step.query, step.key);
      const auto b = output.plain().choose(x, limits, step.query, step.feature);
      if (!a || !b) continue;
      // What spans a part is no multiple of a step, unless it spans the whole.
      const auto spanning = [](index_t tile, index_t part, index_t whole) { return tile == part ? whole : tile; };
      t.scores = {spanning(a->b1, scores.m, x.n_q), spanning(a->b2, scores.n, x.n_k)};
      t.output = {spanning(b->b1, output.m, x.n_q), spanning(b->b2, output.n, x.d_v)};
      t.width = largest_tile(std::max({x.n_k, x.d, x.d_v}), 1, [&](index_t width) {
        return fits<StrassenForward>(x, Tiling{t.levels, width, t.scores, t.output}, limits);
      });
      if (t.width == 0) continue;
      if (const Words cost = limits.price.of(io(x, t)); !best || cost < least) {
        best = t;
        least = cost;
      }
    }
    return best;
  }

  // ---- the recursion ----

  template <std::size_t Out, std::size_t In>
  using Signs = std::array<std::array<int, In>, Out>;
  /// Quadrants are 11, 12, 21, 22. Part p of C is the product of SUM_q kLeft[p][q] A_q and SUM_q kRight[p][q] B_q, and
  /// C_q = SUM_p kJoin[q][p] of these.
  static constexpr Signs<7, 4> kLeft{
      {{1, 0, 0, 1}, {0, 0, 1, 1}, {1}, {0, 0, 0, 1}, {1, 1}, {-1, 0, 1}, {0, 1, 0, -1}}};
  static constexpr Signs<7, 4> kRight{
      {{1, 0, 0, 1}, {1}, {0, 1, 0, -1}, {-1, 0, 1}, {0, 0, 0, 1}, {1, 1}, {0, 0, 1, 1}}};
  static constexpr Signs<4, 7> kJoin{{{1, 0, 0, 1, -1, 0, 1}, {0, 0, 1, 0, 1}, {0, 1, 0, 1}, {1, -1, 1, 0, 0, 1}}};
  /// For quadrants of B where B^T is multiplied: 12 and 21 change places.
  static constexpr Signs<7, 4> kRightTransposed = [] {
    Signs<7, 4> signs = kRight;
    for (auto& row : signs) std::swap(row[1], row[2]);
    return signs;
  }();

  /// A matrix, and where its parts and theirs lie.
  struct Node {
    SlowMatrix matrix, room;

    std::array<SlowMatrix, 4> quadrants() const {
      const Shape h = half(matrix.shape);
      const auto at = [&](index_t i, index_t j) {
        const Shape left{matrix.shape.rows - i * h.rows, matrix.shape.cols - j * h.cols};
        return SlowMatrix{matrix.array,
                          {std::min(h.rows, left.rows), std::min(h.cols, left.cols)},
                          matrix.instance,
                          matrix.first_row + i * h.rows,
                          matrix.first_col + j * h.cols};
      };
      return {at(0, 0), at(0, 1), at(1, 0), at(1, 1)};
    }
    std::array<SlowMatrix, 7> parts() const {
      std::array<SlowMatrix, 7> list;
      for (index_t p = 0; p < 7; ++p) list[static_cast<std::size_t>(p)] = part(p).matrix;
      return list;
    }
    Node part(index_t p) const {
      const Shape h = half(matrix.shape);
      const auto below = [&](index_t row, Shape s) {
        return SlowMatrix{room.array, s, room.instance, room.first_row + row, room.first_col};
      };
      return {below(p * h.rows, h), below(7 * h.rows, {room.shape.rows - 7 * h.rows, room.shape.cols})};
    }
  };

  /// Row r of each out[i] <- SUM_j signs[i][j] in[j], `width` words at a time. Words beyond the edge of a matrix are 0.
  /// change(j, words) before they are added, finish(i, sums) before they are stored.
  template <class W, std::size_t In, std::size_t Out, class Change, class Finish>
  static void add_rows(W& w, index_t r, const std::array<SlowMatrix, In>& in, const std::array<SlowMatrix, Out>& out,
                       const Signs<Out, In>& signs, index_t width, const Change& change, const Finish& finish) {
    for (index_t col = 0; col < out[0].shape.cols; col += width) {
      const auto words = [&](const SlowMatrix& m) {
        return r < m.shape.rows ? std::clamp<index_t>(m.shape.cols - col, 0, width) : 0;
      };
      const auto sums = w.alloc(out[0].array, {static_cast<index_t>(Out), words(out[0])});
      const auto sum = [&](std::size_t i, index_t n) { return sums.part({1, n}, static_cast<index_t>(i)); };
      w.compute(kernel::Zero{}, sums);
      for (std::size_t j = 0; j < In; ++j) {
        const index_t n = words(in[j]);
        if (n == 0) continue;
        const auto x = w.load(in[j].block(r, col, {1, n}));
        change(j, x);
        int now = 1;
        for (const int sign : {1, -1})
          for (std::size_t i = 0; i < Out; ++i) {
            if (signs[i][j] != sign) continue;
            if (now != sign) w.compute(kernel::Scale{-1}, x);
            now = sign;
            w.compute(kernel::Add{}, sum(i, n), x);
          }
      }
      for (std::size_t i = 0; i < Out; ++i) {
        const index_t n = words(out[i]);
        if (n == 0) continue;
        finish(i, sum(i, n));
        w.store(sum(i, n), out[i].block(r, col, {1, n}));
      }
    }
  }
  /// Nothing is done beside a pass over row r.
  struct Plain {
    void operator()(auto&, index_t, const auto& pass) const { pass(NothingElse{}); }
  };
  /// The parts of a factor: sums of its quadrants. rows(w, r, pass) does what rows r of them need, and pass(change).
  template <class M, class Rows = Plain>
  static void split(M& m, const Node& A, const Signs<7, 4>& signs, index_t width, const Rows& rows = {}) {
    m.each(half(A.matrix.shape).rows, [&](auto& w, index_t r) {
      rows(w, r,
           [&](const auto& change) { add_rows(w, r, A.quadrants(), A.parts(), signs, width, change, NothingElse{}); });
    });
  }
  /// The quadrants of a product, from its parts; the same with pass(finish).
  template <class M, class Rows = Plain>
  static void join(M& m, const Node& C, index_t width, const Rows& rows = {}) {
    m.each(half(C.matrix.shape).rows, [&](auto& w, index_t r) {
      rows(w, r,
           [&](const auto& finish) { add_rows(w, r, C.parts(), C.quadrants(), kJoin, width, NothingElse{}, finish); });
    });
  }
  /// The parts of C, where those of A and B are there.
  template <class M>
  static void multiply(M& m, const Residence& fast, const Node& C, const Node& A, const Node& B, bool transposed,
                       index_t levels, index_t width, GemmTiling t) {
    for (index_t p = 0; p < 7; ++p) {
      const Node c = C.part(p), a = A.part(p), b = B.part(p);
      if (levels == 1) {
        gemm(m, fast, c.matrix, {a.matrix}, {b.matrix, transposed}, t);
        continue;
      }
      split(m, a, kLeft, width);
      split(m, b, transposed ? kRightTransposed : kRight, width);
      multiply(m, fast, c, a, b, transposed, levels - 1, width, t);
      join(m, c, width);
    }
  }

  template <Machine M>
  static void run(M& m, const Operands& x, Tiling t) {
    const Node Q{x.Q, x.A1}, K{x.K, x.A2}, V{x.V, x.A3}, S{x.S, x.P}, O{x.O, x.Og};
    const index_t h = half(x.shape.n_q);
    const auto row_of = [&](index_t r, index_t i) { return x.lse.rows(r + i * h, 1); };  // of quadrants above or below
    const auto count = [&](index_t r) -> index_t { return r + h < x.shape.n_q ? 2 : 1; };

    split(m, Q, kLeft, t.width);
    split(m, K, kRightTransposed, t.width);
    multiply(m, x.shape.fast, S, Q, K, true, t.levels, t.width, t.scores);
    join(m, S, t.width, [&](auto& w, index_t r, const auto& pass) {  // scores and lse
      const auto max = w.alloc(x.lse.array, {count(r), 1}), sum = w.alloc(x.lse.array, {count(r), 1});
      w.compute(kernel::StatisticsInit{}, max, sum);
      pass([&](std::size_t quadrant, const Arg& s) {
        const auto i = static_cast<index_t>(quadrant / 2);
        w.compute(kernel::Scale{x.scale}, s);
        w.compute(kernel::StatisticsAdd{}, max.rows(i, 1), sum.rows(i, 1), s);
      });
      w.compute(kernel::LogSum{}, max, sum);
      for (index_t i = 0; i < count(r); ++i) w.store(max.rows(i, 1), row_of(r, i));
    });

    split(m, S, kLeft, t.width, [&](auto& w, index_t r, const auto& pass) {  // scores become weights as they arrive
      const auto lse = w.alloc(x.lse.array, {count(r), 1});
      for (index_t i = 0; i < count(r); ++i) w.load_into(lse.rows(i, 1), row_of(r, i));
      pass([&](std::size_t quadrant, const auto& s) {
        w.compute(kernel::Weights{}, s, lse.rows(static_cast<index_t>(quadrant / 2), 1));
      });
    });
    split(m, V, kRight, t.width);
    multiply(m, x.shape.fast, O, S, V, false, t.levels, t.width, t.output);
    join(m, O, t.width);
  }
};

}  // namespace redblue::schedule
