#pragma once
#include <rapidcheck.h>

#include <ostream>
#include <vector>

#include "redblue/plan/schedules.hpp"

/// Random problems and tilings, small enough to run every word and ragged more often than not.
namespace redblue::test {

struct Case {
  Sizes shape;
  std::vector<int> sizes;     ///< raw tile sizes, 1..8; larger than a dimension often enough
  schedule::Limits limits{};  ///< for tilings that a schedule chooses; M = 0: none
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << "n_q " << c.shape.n_q << " n_k " << c.shape.n_k << " d " << c.shape.d << " d_v " << c.shape.d_v;
  if (c.shape.d_in > 0) out << " d_in " << c.shape.d_in;
  if (c.shape.score != Score::softmax) out << ' ' << name_of(c.shape.score);
  if (c.shape.mask.causal) out << " causal offset " << c.shape.mask.offset << " group " << c.shape.mask.group;
  out << " tiles";
  for (int s : c.sizes) out << ' ' << s;
  if (c.limits.M > 0)
    out << " M " << c.limits.M.str() << " multiples " << c.limits.multiple.query << ' ' << c.limits.multiple.key << ' '
        << c.limits.multiple.feature << (c.limits.double_buffer ? " double buffers" : "");
  return out;
}

inline Case any_case() {
  Case c;
  const int group = *rc::gen::inRange(1, 4);
  c.shape.mask = {*rc::gen::arbitrary<bool>(), *rc::gen::inRange(-6, 9), group};
  c.shape.n_q = *rc::gen::inRange(1, 15) * (c.shape.mask.causal ? group : 1);
  c.shape.n_k = *rc::gen::inRange(1, 15);
  c.shape.d = *rc::gen::inRange(1, 10);
  c.shape.d_v = *rc::gen::inRange(1, 10);
  c.shape.lse_required = *rc::gen::arbitrary<bool>();
  c.sizes = *rc::gen::container<std::vector<int>>(12, rc::gen::inRange(1, 9));
  if (!c.shape.mask.causal) c.shape.mask = {};
  return c;
}

/// The same with any score function, sources of their own width, square and equal sizes (which some schedules ask for)
/// now and then, and limits under which a schedule is to choose its tiling.
inline Case any_case_of_any_operation() {
  Case c = any_case();
  c.shape.score = *rc::gen::element(Score::softmax, Score::softmax, Score::sigmoid, Score::relu, Score::identity);
  c.shape.lse_required = c.shape.statistics() > 0;
  c.shape.d_in = *rc::gen::inRange(1, 8);
  if (*rc::gen::inRange(0, 3) == 0) {
    c.shape.n_k = c.shape.n_q;
    c.shape.d_v = c.shape.d;
  }
  c.limits.M = *rc::gen::inRange(10, 600);
  c.limits.multiple = {*rc::gen::inRange(1, 5), *rc::gen::inRange(1, 5), *rc::gen::inRange(1, 5)};
  c.limits.double_buffer = *rc::gen::arbitrary<bool>();
  return c;
}

/// Tile sizes of a case, one after another, each cut to its dimension.
class Deal {
 public:
  explicit Deal(const Case& c) : x_(c.shape), sizes_(c.sizes) {}

  index_t operator()(index_t n) { return std::min<index_t>(next(), n); }
  bool coin() { return next() % 2 == 0; }

  schedule::QueryPass query_pass() { return {(*this)(x_.n_q), (*this)(x_.n_k)}; }
  schedule::KeyPass key_pass() { return {(*this)(x_.n_k), (*this)(x_.n_q)}; }
  schedule::ScoreTiling scores() { return {coin(), (*this)(x_.n_q), (*this)(x_.n_k)}; }
  schedule::GemmTiling product(index_t m, index_t n) { return {(*this)(m), (*this)(n)}; }
  schedule::GemmTiling product(const schedule::Product& p) { return product(p.m(), p.n()); }
  template <std::size_t N>
  std::array<schedule::GemmTiling, N> products(const std::array<schedule::Product, N>& list) {
    std::array<schedule::GemmTiling, N> tiles;
    for (std::size_t i = 0; i < N; ++i) tiles[i] = product(list[i]);
    return tiles;
  }
  const Sizes& shape() const { return x_; }

 private:
  int next() { return sizes_[next_++ % sizes_.size()]; }

  Sizes x_;
  std::vector<int> sizes_;
  std::size_t next_ = 0;
};

/// A tiling of each schedule.
template <class S>
struct Dealt {
  static typename S::Tiling tiling(Deal& deal) {
    using namespace schedule;
    const Sizes& x = deal.shape();
    if constexpr (std::same_as<S, FusedQueryOuterBackward> || std::same_as<S, OnTheFlyGradient>) {
      return {deal.query_pass()};
    } else if constexpr (std::same_as<S, FusedKeyOuterBackward>) {
      return {deal.key_pass()};
    } else if constexpr (std::same_as<S, GroupedKeyOuterBackward>) {
      return {deal.key_pass(), deal(8)};
    } else if constexpr (std::same_as<S, TwoPassBackward>) {
      return {deal.query_pass(), deal.key_pass()};
    } else if constexpr (std::same_as<S, SpilledBackward>) {
      return {deal.key_pass(), deal.product(x.n_q, x.d)};
    } else if constexpr (std::same_as<S, FusedValueBackward>) {
      return {deal.scores(), deal(x.n_k), deal(x.n_q), deal.product(x.n_q, x.d), deal.product(x.n_k, x.d)};
    } else if constexpr (std::same_as<S, MaterialisedBackward>) {
      return {deal.scores(), deal.scores(), deal.product(x.n_k, x.d_v), deal.product(x.n_q, x.d),
              deal.product(x.n_k, x.d)};
    } else if constexpr (std::same_as<S, SmallCacheGradient>) {
      return {deal.product(x.n_q, x.d), deal.product(x.n_k, x.d_v), deal.scores(), deal.scores(),
              deal.product(x.n_q, x.d), deal.product(x.d, x.d)};
    } else if constexpr (std::same_as<S, SharedSourceGradient>) {
      return {deal.products(S::products(GradientXOperands(x, 1))), deal.query_pass()};
    } else if constexpr (std::same_as<S, SharedSourceForward>) {
      return {deal.product(x.n_q, x.d), deal(x.n_q), deal(x.n_k), deal.product(x.n_q, x.d_v)};
    } else if constexpr (std::same_as<S, Algorithm1Gradient>) {
      return {};
    } else if constexpr (std::same_as<S, Algorithm6Gradient>) {
      return {deal(8)};
    } else if constexpr (std::same_as<S, Algorithm9Gradient>) {
      return {deal(8), deal(8)};
    } else if constexpr (std::same_as<S, FlashForward> || std::same_as<S, FlashTiledForward> ||
                         std::same_as<S, ScoreTilesForward>) {
      return {deal(x.n_q), deal(x.n_k)};
    } else if constexpr (std::same_as<S, SplitKeysForward>) {
      return {deal(x.n_q), deal(x.n_k), deal(8)};
    } else if constexpr (std::same_as<S, FlashPinnedForward>) {
      const index_t Br = deal(x.n_q), Bc = deal(x.n_k), steps = deal(8) % 3;
      return {Br, deal.coin() ? x.n_k : std::min(steps * Bc, x.n_k), Bc};
    } else if constexpr (std::same_as<S, ColumnSplitForward>) {
      return {deal(x.n_q), deal(x.n_k), deal(x.d_v)};
    } else if constexpr (std::same_as<S, KeyOuterForward>) {
      return {deal(x.n_k), deal(x.n_q)};
    } else if constexpr (std::same_as<S, SmallCacheForward>) {
      return {{deal.coin(), deal(x.n_q), deal(x.n_k)}, {deal(x.n_q), deal(x.d_v)}};
    } else if constexpr (std::same_as<S, NaiveForward>) {
      return {deal(x.n_q), deal(x.n_k), deal(x.n_q), deal(x.d_v), 1 + deal(8) % 2};
    } else if constexpr (std::same_as<S, SahaYeForward>) {
      return {deal(8)};
    } else {  // tiles of one size in each dimension
      return S::smallest(x, {deal(8), deal(8), deal(8)});
    }
  }
};
template <schedule::RowsGo rows_go>
struct Dealt<schedule::QueryOuterGradient<rows_go>> {
  using S = schedule::QueryOuterGradient<rows_go>;
  static typename S::Tiling tiling(Deal& deal) {
    const Sizes& x = deal.shape();
    return {deal.product(x.n_q, x.d), deal.product(x.n_k, x.d_v), deal.query_pass(), deal.product(x.d, x.d)};
  }
};
template <schedule::Values values>
struct Dealt<schedule::KeyOuterGradient<values>> {
  using S = schedule::KeyOuterGradient<values>;
  static typename S::Tiling tiling(Deal& deal) {
    const Sizes& x = deal.shape();
    return {deal(x.n_k), deal(x.n_q), deal.product(x.n_k, x.d_v)};
  }
};
template <class S, class X>
struct Dealt<schedule::Projected<S, X>> {
  static typename schedule::Projected<S, X>::Tiling tiling(Deal& deal) {
    const X x(deal.shape(), 1);
    return {deal.products(x.projections()), Dealt<S>::tiling(deal), deal.products(x.gradients())};
  }
};

/// Tile sizes of the case, cut to their dimensions.
template <class S>
typename S::Tiling tiling_of(const Case& c) {
  Deal deal(c);
  return Dealt<S>::tiling(deal);
}

template <class S>
inline constexpr bool kSplitsColumns =
    std::same_as<S, schedule::ColumnSplitForward> || std::same_as<S, schedule::Projected<schedule::ColumnSplitForward>>;

template <class S>
bool can_solve(const Sizes& x) {
  if constexpr (requires { S::unsupported(x); })
    if (S::unsupported(x)) return false;
  if constexpr (requires { S::only_score; })
    if (x.score != S::only_score) return false;
  return (!x.mask.causal || S::masks) && (x.score == Score::softmax || S::any_score);
}

/// f(Choice<S>) for every schedule of the list that can solve the case: tiles of the case, and those that the schedule
/// chooses under the limits of the case.
template <class List = plan::ForwardSchedules, class F>
void for_each_schedule(const Case& c, const F& f) {
  List::for_each([&]<class S>(plan::Choice<S>) {
    if (!can_solve<S>(c.shape)) return;
    f(plan::Choice<S>{tiling_of<S>(c)});
    if (c.limits.M == 0) return;
    if (const auto chosen = S::choose_tiling(c.shape, c.limits)) f(plan::Choice<S>{*chosen});
  });
}

}  // namespace redblue::test
