#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "redblue/kernels/implementations.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/masks/visible.hpp"
#include "redblue/planner/call_memo.hpp"
#include "redblue/planner/time.hpp"

namespace redblue::model {

/// How many rounds of a loop are walked, or one more, to stand for all; 0: all of them.
struct SomeRounds {
  index_t each = 0;     ///< of `each`: one worker alone takes all rounds
  index_t in_turn = 0;  ///< of in_turn
  bool ends = false;    ///< of in_turn with tiles that stay: more of the first rounds and of the last, which masks cut
};

/// The machine that adds up the modelled time of every tile operation of a schedule. It holds no data and computes
/// nothing. A composite kernel is one implementation: its parts pay for no passes.
class Timed : public MachineFace<Timed> {
 public:
  /// Thrown when a schedule has more operations than `most`, or is hopeless.
  struct TooMany {};

  /// `pattern`: is there one? hopeless_s: the seconds of a multiply-add, with all that goes with it, that the first
  /// operations may take.
  Timed(const Rates& rates, std::size_t most, bool pattern = false, double hopeless_s = HUGE_VAL, SomeRounds some = {})
      : rates_(rates),
        without_bf16_(rates.without_bf16()),
        most_(most),
        pattern_(pattern),
        hopeless_s_(hopeless_s),
        some_(some),
        memo_(rates.tile_rows > 1 ? 0 : rates.lanes) {}

  index_t open(SlowArray, Shape s, Layout layout) {
    tiles_.push_back({words_of(s, layout), s.rows, layout});
    resident_ += tiles_.back().words;
    return static_cast<index_t>(tiles_.size()) - 1;
  }
  void close(index_t, SlowArray, Shape) {
    resident_ -= tiles_.back().words;
    tiles_.pop_back();
  }
  void read(const Arg& tile, const Block& b) {
    copy(b);
    // A tile that is only read lies where its words do: they come while a kernel reads them.
    const HeldTile& to = tiles_[static_cast<std::size_t>(tile.depth)];
    const bool stays = to.layout == Layout::read_only;
    if (pattern_ && b.shape.rows < to.rows) pass(kRefillSeconds);
    (stays ? work_.passed : copied_) += static_cast<double>(b.shape.words());
  }
  void write(const Block& b, const Arg&) {
    copy(b);
    copied_ += static_cast<double>(b.shape.words());
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    if constexpr (!std::is_same_v<K, kernel::AnyKernel>) {
      run(kernel::AnyKernel(k), args);
    } else {
      call();
      const Work* known = memo_.find(k, args, tiles_);
      Work work;
      if (known == nullptr) {
        const Work before = std::exchange(work_, {});
        scores_ = {};
        hides_ = is_placed_ = false;
        add_call(k, args);
        work = std::exchange(work_, before);
        if (!is_placed_ || k.place() != nullptr) memo_.keep(k, args, tiles_, scores_, hides_, work);
        known = &work;
      }
      span_ += known->seconds();
      held_ = std::max(held_, resident_ + known->streamed);
      work_ += *known;
      reached_ += weight_ * known->macs;
    }
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    run(k, args);
  }
  static index_t read_index(Question, const Arg&, index_t worst) { return worst; }
  template <class Body>
  void each(index_t n, const Body& body) {
    if (some_.each > 0) return in_parts(n, some_.each, [&](index_t i) { body(*this, i); });
    if (resident_ > 0) {  // rounds that use tiles of their worker stay with it: machine::Ram::each
      for (index_t i = 0; i < n; ++i) body(*this, i);
      return;
    }
    const double before = span_;
    double longest = 0;
    for (index_t i = 0; i < n; ++i) {
      const double started = work_.seconds(), inner = items_total_;
      span_ = 0;
      body(*this, i);
      longest = std::max(longest, span_);
      // The work outside of inner loops is one more item.
      if (const double rest = work_.seconds() - started - (items_total_ - inner); rest > kCallSeconds / 2)
        add_item(rest);
    }
    span_ = before + longest;
  }

  template <class Body>
  void in_turn(index_t n, const Body& body) {
    takes_turns_ = true;
    if (some_.in_turn > 0) return resident_ > 0 && some_.ends ? from_ends(n, body) : in_parts(n, some_.in_turn, body);
    for (index_t i = 0; i < n; ++i) body(i);
  }

  std::size_t operations() const { return operations_; }
  bool takes_turns() const { return takes_turns_; }
  bool is_hopeless() const { return work_.macs > 0 && work_.seconds() > hopeless_s_ * work_.macs; }
  /// Time of one worker, without transfer.
  Time time() const { return {.compute_s = work_.compute_s, .exp_s = work_.exp_s, .pass_s = work_.pass_s}; }
  double span() const { return span_; }                        ///< least seconds, with any number of workers
  const std::vector<double>& items() const { return items_; }  ///< seconds of the rounds of `each`
  double macs() const { return work_.macs; }                   ///< multiply-adds of products
  double reached() const { return reached_; }                  ///< the same, of a walk that was not finished
  double touched() const { return work_.touched; }             ///< words of tiles read and written, in all calls
  /// The share of the words across the border of fast memory that is copied into tiles or out of them.
  double copied_share() const { return copied_ / std::max(1.0, copied_ + work_.passed); }
  double held() const { return held_; }  ///< most words resident, with those that stream past in a call

 private:
  /// Rounds change little from one to the next: the one in the middle of each of some parts, all of about one length,
  /// stands for its part. Lengths are odd, so that there is one, and it is exact where work grows evenly, as under a
  /// causal mask.
  template <class Body>
  void in_parts(index_t n, index_t parts, const Body& body) {
    parts = std::min(n, parts + (n - parts) % 2);
    const index_t pairs = (n - parts) / 2;
    for (index_t k = 0, begin = 0; k < parts; ++k) {
      const index_t length = 1 + 2 * ((k + 1) * pairs / parts - k * pairs / parts);
      stands_for(length, begin + length / 2, body);
      begin += length;
    }
  }
  /// Goes over rounds in parts as in_parts does, but these are longer and longer from both ends on, two of each length:
  /// masks cut the first steps and the last.
  template <class Body>
  void from_ends(index_t n, const Body& body) {
    index_t begin = 0, length = 1;
    for (bool again = true; n - 2 * begin > 2 * length; again = !again) {
      stands_for(length, begin + length / 2, body);
      stands_for(length, n - 1 - begin - length / 2, body);
      begin += length;
      if (!again) length *= 3;
    }
    index_t left = n - 2 * begin;
    if (left > 0 && left % 2 == 0) stands_for(1, begin + --left, body);
    if (left > 0) stands_for(left, begin + left / 2, body);
  }
  /// Walks a round in place of that many `rounds`.
  template <class Body>
  void stands_for(index_t rounds, index_t round, const Body& body) {
    const auto times = static_cast<double>(rounds);
    const Work before = std::exchange(work_, {});
    const double copied = std::exchange(copied_, 0), span = std::exchange(span_, 0);
    weight_ *= times;
    body(round);
    weight_ /= times;
    const Work walked = std::exchange(work_, before);
    work_ += times * walked;
    copied_ = copied + times * copied_;
    span_ = span + times * span_;
  }
  void add_call(const kernel::AnyKernel& k, std::span<const Arg> args) {
    bool fused = false;
    double seen = 1;  // a composite skips what its mask hides
    const kernel::Costs& costs = kernel::costs_of(k);
    const bool by_parts = !runs_as_one_body(costs, args);
    const Rates& rates = costs.multiplies_bf16 ? rates_ : without_bf16_;
    kernel::for_parts(k, args, [&](const auto& part, std::span<const Arg> a) {
      fused = !by_parts && kernel::name_of(part) != kernel::name_of(k);
      if (by_parts) pack(a);
      if (by_parts && kernel::macs(part, a) > 0)
        work_.pass_s += static_cast<double>(panels(args[0].shape().rows)) * kPartSeconds;
      if (const kernel::Costs& of_part = kernel::costs_of(part); of_part.scores_at) {
        const bool skips = fused || !of_part.hides;
        const Shape S = a[*of_part.scores_at].shape();
        scores_ = S;
        is_placed_ = true;
        const Place& place = *kernel::place_of(part);
        hides_ = hides_ || place.mask.is_listed() || !place.sees_all(S);
        const double share =
            share_seen(place, S, costs.keys_in_lanes, skips ? pair_by_pair(k, args) : std::nullopt, of_part.hides);
        if (skips) seen = share;
      }
      add_part(part, a, fused, seen, rates);
    });
    touch(k, args, fused);
  }
  /// Rows that lie in vector lanes at a time.
  index_t panel() const { return index_t{kRegisterVectors} * rates_.lanes; }
  /// Implementations of composites take tiles that lie as they like them; the parts do the work for others, such as a
  /// row of pinned queries (machines/ram/arena.hpp).
  bool runs_as_one_body(const kernel::Costs& costs, std::span<const Arg> args) const {
    if (!costs.packed) return true;
    const Arg& a = args[costs.packed->argument];
    const HeldTile& tile = tiles_[static_cast<std::size_t>(a.depth)];
    if (costs.packed->or_few_rows && a.shape().rows <= rates_.lanes / 2) return true;
    return tile.layout == costs.packed->layout && a.shape().rows == tile.rows;
  }
  /// What a part copies into panels of its own, or brings back from them.
  void pack(std::span<const Arg> args) {
    for (const Arg& a : args) {
      const auto words = static_cast<double>(a.shape().words());
      work_.pass_s += pass_seconds(rates_, words, words * rates_.word_bytes);
    }
  }
  /// Panels that these rows take: a single vector that is left at the end joins the panel before it.
  index_t panels(index_t rows) const {
    return std::max<index_t>(1, ceil_div(ceil_div(rows, rates_.lanes) - 1, index_t{kRegisterVectors}));
  }
  /// Words that a tile takes in a cache: in a fused implementation one panel of scratch, two copies of what it also
  /// packs, and half of what it rounds to bf16.
  double words_of(Shape s, Layout layout) const {
    if (layout == Layout::panel_scratch) s.rows = std::min(s.rows, panel());
    if (layout == Layout::query_panels && rates_.multiplies_bf16) return static_cast<double>(s.words()) / 2;
    return static_cast<double>(s.words()) * (layout == Layout::key_panels ? 2 : 1);
  }
  /// Words of a result that a fused implementation works on at a time: one panel if the result lies in panels, else one
  /// register tile.
  index_t panel_words(const Arg& result) const {
    const Layout layout = tiles_[static_cast<std::size_t>(result.depth)].layout;
    if (layout != Layout::output_panels && layout != Layout::panel_scratch) return 0;
    const index_t words = std::min(result.shape().rows, panel()) * result.shape().cols;
    return layout == Layout::panel_scratch && rates_.multiplies_bf16 ? words / 2 : words;  // weights are pairs
  }
  template <class K>
  void touch(const K& k, std::span<const Arg> args, bool fused) {
    const double passes = fused ? static_cast<double>(panels(args[0].shape().rows)) : 1;
    if (rates_.multiplies_bf16) round(kernel::costs_of(k).rounds, args);
    double streamed = 0;
    for (std::size_t i = 0; i < args.size(); ++i) {
      double words = static_cast<double>(args[i].shape().words());
      // Keys and values that stream past keep their 16 bits; a tile holds words, which are rounded each time. Pairs are
      // made of values.
      if (rates_.multiplies_bf16) {
        const Layout layout = kernel::layout_of(k, i);
        if (layout == Layout::key_rows || layout == Layout::value_pairs) {
          if (args[i].kind == Arg::Kind::tile) narrow(kStagedWords * words);
          words /= 2;
        }
        if (layout == Layout::value_pairs && args[0].shape().rows > rates_.lanes / 2)
          work_.pass_s +=
              pass_seconds(rates_, (rates_.tile_rows > 1 ? kTurning : 2) * words, words * rates_.word_bytes);
      }
      const kernel::Access access = kernel::access_of(k, i);
      if (args[i].kind == Arg::Kind::stream && is_like_bias(args[i].block.array) && access == kernel::Access::read) {
        work_.passed += words;  // each panel reads its own part alone (a single row is read by all, and is short)
        const index_t far = std::max<index_t>(0, args[i].shape().rows - kBiasRows);
        work_.pass_s += static_cast<double>(far) * kFarRowSeconds;
      } else if (args[i].kind == Arg::Kind::stream) {
        streamed += words;
        work_.passed += access == kernel::Access::update ? 2 * words : words;
      } else if (!fused || access != kernel::Access::write)  // what a fused one only writes, it has just used
        work_.touched += access == kernel::Access::update ? 2 * words : words;
    }
    work_.pass_s += (passes - 1) * kCallSeconds;
    work_.touched += (passes - 1) * streamed;  // read for each panel of rows; for the first, it is the schedule's I/O
    work_.streamed = std::max(work_.streamed, streamed);
  }
  /// The backward pass holds f32 words, which it rounds for its products: 4 bytes are read, 2 are written.
  void round(std::span<const std::size_t> rounded, std::span<const Arg> args) {
    double words = 0;
    for (const std::size_t i : rounded) words += static_cast<double>(args[i].shape().words());
    narrow(words);
  }
  /// f32 words become bf16.
  void narrow(double words) { work_.pass_s += pass_seconds(rates_, 1.5 * words, words * rates_.word_bytes); }
  void copy(const Block& b) {
    call();
    const double words = static_cast<double>(b.shape.words());
    auto known = std::ranges::find(copies_, words, &Copy::words);
    if (known == copies_.end()) {
      std::ranges::rotate(copies_, copies_.end() - 1);
      known = copies_.begin();
      *known = {words, pass_seconds(rates_, words, words * rates_.word_bytes)};
    }
    pass(known->seconds);
  }
  void call() {
    constexpr std::size_t kFirst = 64;
    ++operations_;
    if (operations_ > most_ || (operations_ == kFirst && is_hopeless())) throw TooMany{};
    pass(kCallSeconds);
  }
  /// What is no kernel's.
  void pass(double seconds) {
    work_.pass_s += seconds;
    span_ += seconds;
  }
  void add_item(double seconds) {
    items_.push_back(seconds);
    items_total_ += seconds;
  }
  bool goes_by_vector(const Place& place, bool whole) const {
    return place.mask.pattern == nullptr && !(whole && rates_.tile_rows > 1);
  }
  /// f(rows, columns that one of them sees) of a tile of scores: rows of a vector under an interval mask, and of a
  /// panel under a pattern, or where matrix tiles take `whole` panels.
  template <class F>
  void for_panels(const Place& place, Shape S, bool whole, const F& f) const {
    const bool by_vector = goes_by_vector(place, whole);
    for (Range rows{0, 0}; rows.begin < S.rows; rows.begin = rows.end) {
      const index_t left = S.rows - rows.begin;
      rows.end += std::min(left, by_vector ? rates_.lanes : panels(left) == 1 ? left : panel());
      f(rows, place.cols_of(rows, S.cols));
    }
  }
  using ByPair = std::optional<kernel::PairByPair>;
  /// The share of a tile of scores that an implementation works on: of the columns, those from the first to the last
  /// that one of some rows sees. These rows are a vector or a panel, as in for_panels. Where columns lie in vector
  /// lanes, whole vectors of them are formed under a pattern. Panels that go pair by pair, where an implementation may,
  /// count as the pairs of a whole tile that take as long. `hides`: the others pay for hiding scores.
  double share_seen(const Place& place, Shape S, bool columns_in_lanes, const ByPair& by_pair, bool hides) {
    if (place.sees_all(S)) return 1;
    const bool forward = hides && !columns_in_lanes;
    const index_t lanes = columns_in_lanes && place.mask.pattern != nullptr ? rates_.lanes : 1;
    if (!place.mask.is_listed() && goes_by_vector(place, forward))
      return scores_of_vectors(place, S, rates_.lanes).to_double() / static_cast<double>(S.words());
    double seen = 0;
    for_panels(place, S, forward, [&](Range rows, Range cols) {
      if (cols.size() == 0) return;
      const index_t begin = cols.begin / lanes * lanes, end = std::min(S.cols, ceil_div(cols.end, lanes) * lanes);
      if (const auto pairs = pairs_one_by_one(place, S.cols, rows, cols, by_pair)) {
        seen += by_pair->macs(rows.size(), S.cols, *pairs) / by_pair->words;
        return;
      }
      seen += static_cast<double>(rows.size() * (end - begin));
      if (hides) hide(place, rows, cols);
    });
    return seen / static_cast<double>(std::max(index_t{1}, S.words()));
  }
  /// What an implementation of this kernel takes pair by pair, if it may go so where few pairs exist.
  template <class K>
  ByPair pair_by_pair(const K& k, std::span<const Arg> args) const {
    if (rates_.multiplies_bf16 || rates_.isa == Isa::portable) return std::nullopt;
    return kernel::pair_by_pair(k, args);
  }
  /// The pairs of these rows of a tile, which see columns from the first to the last of `envelope`, if they are taken
  /// one by one.
  static std::optional<index_t> pairs_one_by_one(const Place& place, index_t keys, Range rows, Range envelope,
                                                 const ByPair& by_pair) {
    if (!by_pair || place.mask.pattern == nullptr) return std::nullopt;
    index_t pairs = 0;
    for (index_t r = rows.begin; r < rows.end; ++r)
      pairs += place.mask.pattern->rows().count(place.row + r, {place.col, place.col + keys});
    if (!by_pair->pays(rows.size(), keys, pairs, rows.size() * envelope.size())) return std::nullopt;
    return pairs;
  }
  /// Scores of a part of a tile, of which a pattern hides some: a word of bits for each key of a panel, and, of
  /// gradients, weights that are stored, hidden and read again. To hide scores in registers costs about as much, and to
  /// hide scores and then their gradients, part by part, too.
  void hide(const Place& place, Range rows, Range cols) {
    const Shape part{rows.size(), cols.size()};
    if (place.mask.pattern == nullptr || place.at(rows.begin, cols.begin).sees_all(part)) return;
    const auto words = static_cast<double>(part.words());
    work_.pass_s +=
        pass_seconds(rates_, 4 * words, words * rates_.word_bytes) + static_cast<double>(part.cols) * kSightSeconds;
  }
  template <class K>
  void add_part(const K& k, std::span<const Arg> args, bool fused, double seen, const Rates& rates) {
    const Shape out = args[0].shape();
    const double held = static_cast<double>(fused ? panel_words(args[0]) : out.words()) * rates_.word_bytes;
    const index_t macs = kernel::macs(k, args);
    work_.macs += static_cast<double>(macs);
    const bool plain = !kernel::may_have_implementation(k);
    if (macs > 0 && plain)
      work_.compute_s +=
          static_cast<double>(macs) / rates_.portable_macs * (kernel::costs_of(k).finds_pairs ? kPairVisit : 1);
    else if (macs > 0)
      work_.compute_s +=
          product_seconds(rates, out.rows, out.cols, static_cast<double>(macs) / static_cast<double>(out.words()), held,
                          fused ? Lanes::better : Lanes::rows, seen);
    const index_t exps = kernel::exponentials(k, args);
    if (exps > 0)
      work_.exp_s += seen * static_cast<double>(exps) /
                     (plain ? rates_.portable_exps : rates_.exps);  // with its loads and stores, in L1
    if (macs > 0 || fused || (exps > 0 && held <= static_cast<double>(rates_.levels.front().bytes))) return;
    double words = static_cast<double>(out.words());  // written; read below with the others
    kernel::for_args(k, args, [&](const Arg& a) { words += static_cast<double>(a.shape().words()); });
    work_.pass_s += pass_seconds(rates_, words, held);
  }

  const Rates& rates_;
  Rates without_bf16_;
  std::size_t most_;
  bool pattern_;
  double hopeless_s_;
  SomeRounds some_;
  bool takes_turns_ = false;
  std::size_t operations_ = 0;
  Work work_;
  double reached_ = 0, weight_ = 1;  ///< how many rounds a round stands for
  CallMemo memo_;
  struct Copy {
    double words, seconds;
  };
  std::array<Copy, 4> copies_{};  ///< the last ones met: most have few sizes
  // What the call that is added does with scores:
  Shape scores_;
  bool is_placed_ = false;  ///< do they lie somewhere?
  bool hides_ = false;      ///< does its mask hide some of them?
  double copied_ = 0;       ///< words, into tiles and out of them
  double held_ = 0;
  double resident_ = 0;
  std::vector<HeldTile> tiles_;
  double span_ = 0;
  std::vector<double> items_;
  double items_total_ = 0;
};

}  // namespace redblue::model
