#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "redblue/planner/run_on.hpp"
#include "redblue/verify/verify.hpp"

namespace redblue {

namespace {

/// Counts, for each tile, how often its words were added to since their first value, and how often weights in it took
/// in a rounded lse. A tile that is stored and loaded again goes on where it was.
class Steps : public MachineFace<Steps> {
 public:
  const Roundings& most() const { return most_; }

  index_t open(SlowArray, Shape, Layout) {
    tiles_.push_back({});
    return static_cast<index_t>(tiles_.size()) - 1;
  }
  void close(index_t, SlowArray, Shape) { tiles_.pop_back(); }
  void read(const Arg& tile, const Block& b) {
    const auto found = stored_.find(key(b));
    of(tile) = found == stored_.end() ? Roundings{} : found->second;
  }
  void write(const Block& b, const Arg& tile) { stored_[key(b)] = of(tile); }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    take(k, args, 0);
    switch (kernel::costs_of(k).lse) {
      case kernel::LseUse::none:
        break;
      case kernel::LseUse::weights:
        most_.lse = std::max<index_t>(most_.lse, 1);
        break;
      case kernel::LseUse::merges: {
        Roundings& ln = of(args[0]);
        ln.lse = std::max(ln.lse, of(args[1]).lse) + 1;
        most_.lse = std::max(most_.lse, ln.lse);
        break;
      }
    }
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    take(stored_[key(args[0].block)], kernel::access_of(k, 0));
    take(k, args, 1);
  }
  static index_t read_index(Question, const Arg&, index_t worst) { return worst; }
  template <class Body>
  void each(index_t n, const Body& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }

 private:
  using Key = std::tuple<SlowArray, index_t, index_t>;
  static Key key(const Block& b) { return {b.array, b.row, b.col}; }
  Roundings& of(const Arg& tile) { return tiles_[static_cast<std::size_t>(tile.depth)]; }
  template <class K>
  void take(const K& k, std::span<const Arg> args, std::size_t first) {
    for (std::size_t i = first; i < args.size(); ++i)
      if (args[i].kind == Arg::Kind::tile) take(of(args[i]), kernel::access_of(k, i));
  }
  void take(Roundings& words, kernel::Access access) {
    if (access == kernel::Access::write) words = {};
    if (access == kernel::Access::update) most_.additions = std::max(most_.additions, ++words.additions);
  }

  std::vector<Roundings> tiles_;     ///< by their place on the stack
  std::map<Key, Roundings> stored_;  ///< of blocks of slow memory, by their first word
  Roundings most_;
};

}  // namespace

Roundings roundings_of(const plan::Plan& plan) {
  Steps steps;
  machine::Any any(steps);
  run_on(any, plan, unlike_instances(plan));
  Roundings r = steps.most();
  if (plan.forward) {
    const Roundings before = roundings_of(*plan.forward);
    r = {std::max(r.additions, before.additions), std::max(r.lse, before.lse)};
  }
  return r;
}

}  // namespace redblue
