#pragma once
#include "redblue/kernels/dense.hpp"
#include "redblue/language/machine.hpp"
#include "redblue/schedules/parts/visible.hpp"

/// C = A B with one resident tile of C and rank-one updates: the shorter of A[I,t] and B[t,J] is resident, the longer
/// streams past, or, where words differ in width, the one that takes more room does. Optimal to leading order:
/// 2 m k n / sqrt(M) words (Smith et al. 2017, arXiv 1702.02017).
///   reads ceil(n/b2) m k + ceil(m/b1) k n   writes m n   footprint b1 b2 + min(b1, b2) + 1
/// Where A is a matrix over pairs of queries and keys, only the entries of pairs that exist are read, and of B the rows
/// that meet one: ceil(n/b2) nnz + A(b1) n, or B(b1) n where A is such a matrix transposed (docs/model.md).
namespace redblue::schedule {

/// A matrix or its transpose, as a factor of a product.
struct Factor {
  SlowMatrix matrix;
  bool transposed = false;
  bool stays = false;  ///< its columns are resident whatever that takes: they are changed before they are multiplied

  constexpr index_t rows() const { return transposed ? matrix.shape.cols : matrix.shape.rows; }
  constexpr index_t cols() const { return transposed ? matrix.shape.rows : matrix.shape.cols; }
  constexpr Block block(index_t row, index_t col, Shape s) const {
    return transposed ? matrix.block(col, row, {s.cols, s.rows}) : matrix.block(row, col, s);
  }
};
constexpr Factor transposed(const SlowMatrix& m) { return {m, true}; }

/// Which entries of the left factor of a product exist: all, or those of pairs of a row and a term that see each other.
class Entries {
 public:
  Entries() = default;
  static Entries of_pairs(const Sizes& x) { return {x.pairs(), Kind::queries_by_keys}; }
  static Entries of_transposed_pairs(const Sizes& x) { return {x.pairs(), Kind::keys_by_queries}; }
  bool all() const { return kind_ == Kind::all || pairs_.mask.full(); }

  /// The terms with an entry in one of these rows, and those of the rows with an entry in term t.
  Range terms(Range rows, index_t k) const {
    return all() ? Range{0, k} : kind_ == Kind::queries_by_keys ? pairs_.keys_of(rows) : pairs_.rows_of(rows);
  }
  Range rows(index_t t, Range rows) const {
    if (all()) return rows;
    return intersection(rows, kind_ == Kind::queries_by_keys ? pairs_.rows_of({t, t + 1}) : pairs_.keys_of({t, t + 1}));
  }
  Blocks row_blocks(index_t m, index_t size) const {
    return !all() && kind_ == Kind::queries_by_keys ? pairs_.row_blocks(size) : Blocks{m, size};
  }
  /// How many there are, and the terms that blocks of `size` rows meet, summed over the blocks.
  Words count(Words m, Words k) const { return all() ? m * k : pairs_.count(); }
  Words visits(index_t m, Words k, index_t size) const {
    if (all()) return c(m, size) * k;
    return kind_ == Kind::queries_by_keys ? pairs_.visited_keys(size) : pairs_.visited_rows(size);
  }
  index_t best_block(const Sizes& x, index_t largest, index_t step) const {
    return kind_ == Kind::queries_by_keys ? best_query_block(x, largest, step) : best_key_block(x, largest, step);
  }

 private:
  enum class Kind : std::uint8_t { all, queries_by_keys, keys_by_queries };
  Entries(const Pairs& pairs, Kind kind) : pairs_(pairs), kind_(kind) {}
  Pairs pairs_{};
  Kind kind_ = Kind::all;
};

struct GemmTiling {
  index_t b1 = 1;  ///< rows of C at a time
  index_t b2 = 1;  ///< columns of C at a time
};

/// The factors of a rank-one update of an a x b tile: one is resident while the other streams past.
struct RankOne {
  Words column;  ///< A[I,t] resident, B[t,J] streaming
  Words row;     ///< B[t,J] resident, A[I,t] streaming

  RankOne(const Residence& fast, SlowArray A, SlowArray B, index_t a, index_t b)
      : column(fast.tile(A, a, 1) + fast.word(B)), row(fast.tile(B, 1, b) + fast.word(A)) {}
  bool column_stays() const { return column <= row; }
  Words least() const { return std::min(column, row); }
};

/// Where a product goes: is something given there, to which it adds?
struct Target {
  SlowMatrix matrix;
  bool given = false;
  Target(const SlowMatrix& m, bool given = false)  // NOLINT(google-explicit-constructor): most are products alone
      : matrix(m), given(given) {}
};

/// What C (m x n) = A (m x k) B (k x n) costs, or C + A B for a given C.
struct GemmCost {
  SlowArray C, A, B;
  index_t m, k, n;
  Entries entries{};     ///< of A
  bool A_stays = false;  ///< Factor::stays
  bool given = false;    ///< Target::given
  SlowArray beside{};    ///< an array of which each block of columns of C reads words_beside words beside A
  Words words_beside{};
  SlowArray of_terms{};  ///< an array of which each block of C reads words_of_term words for every term
  Words words_of_term{};

  /// Second buffers hold the next column or row and the next streamed word.
  Phase phase(const Sizes& x, GemmTiling t) const {
    const index_t b1 = std::min(t.b1, m), b2 = std::min(t.b2, n);
    const RankOne rank_one(x.fast, A, B, b1, b2);
    const Words factors = A_stays ? rank_one.column : rank_one.least();
    return {x.tile(C, b1, b2) + factors, factors};
  }
  Io io(GemmTiling t) const {
    return Io()
        .read(A, c(n, t.b2) * entries.count(m, k))
        .read(B, entries.visits(m, k, t.b1) * n)
        .read(C, given ? Words(m) * n : Words(0))
        .read(beside, c(n, t.b2) * words_beside)
        .read(of_terms, c(n, t.b2) * entries.visits(m, k, t.b1) * words_of_term)
        .write(C, Words(m) * n);
  }
  Words macs() const { return entries.count(m, k) * n; }
  /// The tiling that moves the fewest words (or the cheapest, if words have prices).
  std::optional<GemmTiling> choose(const Sizes& x, const Limits& limits, index_t step1, index_t step2) const {
    return choose(x, limits, step1, step2, [&](GemmTiling t) { return phase(x, t); });
  }
  /// That tiling for a product whose phase holds more: phase_of(tiling).
  template <class PhaseOf>
  std::optional<GemmTiling> choose(const Sizes& x, const Limits& limits, index_t step1, index_t step2,
                                   const PhaseOf& phase_of) const {
    const auto fits = [&](index_t b1, index_t b2) { return limits.fit(phase_of(GemmTiling{b1, b2})); };
    if (!entries.all() || words_of_term > 0) return choose_each(x, limits, step1, step2, fits);
    const auto best = best_tile(m, n, step1, step2, price_of_columns(limits.price, Words(m) * k),
                                limits.price.reading(B) * k * n, limits.M / x.word(C), fits);
    if (!best) return std::nullopt;
    return GemmTiling{(*best)[0], (*best)[1]};
  }
  /// What a block of columns reads: these words of A, and those beside it.
  Words price_of_columns(const Prices& price, Words of_A) const {
    return price.reading(A) * of_A + price.reading(beside) * words_beside;
  }
  /// Every distinct number of column blocks, with the best b1 that has room, until A alone costs more than the best.
  template <class Fits>
  std::optional<GemmTiling> choose_each(const Sizes& x, const Limits& limits, index_t step1, index_t step2,
                                        const Fits& fits) const {
    std::optional<GemmTiling> best;
    Words cheapest;
    const Words of_columns = price_of_columns(limits.price, entries.count(m, k));
    for (index_t widest = n; widest > 0; widest = next_smaller(n, widest, step2)) {
      const index_t b2 = balanced(n, widest, step2);
      const Words A_words = c(n, b2) * of_columns;
      if (best && A_words >= cheapest) break;
      const index_t largest = largest_tile(m, step1, [&](index_t b1) { return fits(b1, b2); });
      if (largest == 0) continue;
      const index_t b1 = entries.best_block(x, largest, step1);
      const Words visit = limits.price.reading(B) * n + limits.price.reading(of_terms) * c(n, b2) * words_of_term;
      const Words cost = A_words + visit * entries.visits(m, k, b1);
      if (best && cost >= cheapest) continue;
      best = GemmTiling{b1, b2};
      cheapest = cost;
    }
    return best;
  }
};

/// For each t: apply(rows, t, A[rows,t], B[t,J]), one factor resident, the other streamed; `rows` are those of I with
/// an entry in column t of A. `room` is the shape of the tile that is updated: the resident factor has room for its
/// whole side, however many words of it are needed.
template <class W, class Apply>
void for_rank_one(W& w, const Residence& fast, Shape room, const Factor& A, Range I, const Factor& B, Range J,
                  const Entries& entries, const Apply& apply) {
  const bool column_stays =
      A.stays || RankOne(fast, A.matrix.array, B.matrix.array, room.rows, room.cols).column_stays();
  const Range terms = entries.terms(I, A.cols());
  const auto shape_of = [&](const Factor& f) {
    const Shape s = &f == &A ? Shape{room.rows, 1} : Shape{1, room.cols};
    return f.transposed ? Shape{s.cols, s.rows} : s;
  };
  for (index_t t = terms.begin; t < terms.end; ++t) {
    const Range rows = entries.rows(t, I);
    const Block a = A.block(rows.begin, t, {rows.size(), 1}), b = B.block(t, J.begin, {1, J.size()});
    const auto resident = w.alloc(column_stays ? a.array : b.array, shape_of(column_stays ? A : B));
    const Arg part = resident.part((column_stays ? a : b).shape);
    w.load_into(part, column_stays ? a : b);
    if (column_stays)
      apply(rows, t, part, w.stream(b));
    else
      apply(rows, t, w.stream(a), part);
  }
}

/// C = post(A B), or post(C + A B) for a given C, post working on each finished tile; prepare(w, rows, t, a) works on
/// column t of A, which stays, before these rows of it are multiplied.
template <class M, class Post, class Prepare = NothingElse>
void gemm(M& m, const Residence& fast, const Target& target, const Factor& A, const Factor& B, GemmTiling t,
          const Entries& entries, const Post& post, const Prepare& prepare = {}) {
  const kernel::Gemm rank_one{A.transposed, B.transposed};
  const SlowMatrix& C = target.matrix;
  const Blocks rows = entries.row_blocks(C.shape.rows, t.b1), cols{C.shape.cols, t.b2};
  m.each(rows.count(), [&](auto& w, index_t i) {
    for (index_t j = 0; j < cols.count(); ++j) {
      const Range I = rows(i), J = cols(j);
      const auto T = target.given ? w.load(C.block(I, J)) : w.alloc(C.block(I, J));
      if (!target.given) w.compute(kernel::Zero{}, T);
      for_rank_one(w, fast, T.shape(), A, I, B, J, entries, [&](Range r, index_t term, const auto& a, const auto& b) {
        if constexpr (std::same_as<std::remove_cvref_t<decltype(a)>, Arg>)
          prepare(w, r, term, a);  // a stream is never changed
        w.compute(rank_one, T.rows(r.begin - I.begin, r.size()), a, b);
      });
      post(w, T);
      w.store(T, C.block(I, J));
    }
  });
}

/// C = A B, or C + A B.
template <class M>
void gemm(M& m, const Residence& fast, const Target& C, const Factor& A, const Factor& B, GemmTiling t,
          const Entries& entries = {}) {
  gemm(m, fast, C, A, B, t, entries, NothingElse{});
}

}  // namespace redblue::schedule
