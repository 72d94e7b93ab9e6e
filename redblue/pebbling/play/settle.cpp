#include "redblue/pebbling/play/settle.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace redblue::pebbling {
namespace {

/// Adds the expressions that s is made of, itself too: those that are held, or those that are not.
void collect(Symbol s, const Holders& from, bool held, std::set<Expr>& into) {
  if (s.is_known() || into.contains(s.expr())) return;
  const bool is_held = from.contains(s.expr());
  if (is_held == held) into.insert(s.expr());
  if (is_held) return;
  for (const Symbol& a : Expressions::now()[s.expr()].args) collect(a, from, held, into);
}
std::set<Expr> parents_of(Symbol s, const Holders& from) {
  std::set<Expr> parents;
  collect(s, from, true, parents);
  return parents;
}

/// Targets that share old values.
class Settling {
 public:
  Settling(LiveGraph& live, std::vector<Target>& targets, std::vector<std::size_t> members, Holders& from,
           std::set<Expr> ending)
      : live_(live), targets_(targets), from_(from), ending_(std::move(ending)), open_(std::move(members)) {}

  void run() {
    while (!open_.empty())
      if (!one_in_place() && !one_beside() && !part_in_place() && !new_part()) settle_one(open_.front(), kNoExpr);
    release_unneeded(std::set<Expr>(ending_));
    for (const Expr e : results_) from_.erase(e);
  }

 private:
  Symbol value_of(std::size_t t) const { return targets_[t].value; }
  /// Does an open target but this one need it? A part serves as long as it can: without it, targets would need old
  /// values again.
  bool is_needed(Expr e, std::size_t but) const {
    return std::ranges::any_of(open_, [&](std::size_t t) {
      if (t == but) return false;
      return parts_.contains(e) ? parents_of(value_of(t), from_).contains(e) : !is_computable(value_of(t), from_, e);
    });
  }
  void release_unneeded(const std::set<Expr>& candidates) {
    for (const Expr e : candidates) {
      if (!ending_.contains(e) || is_needed(e, targets_.size())) continue;
      live_.release(from_.at(e));
      forget(e);
    }
  }
  void forget(Expr e) {
    from_.erase(e);
    ending_.erase(e);
    parts_.erase(e);
  }

  /// An old value that nobody needs once s is there; s is that of this target, or else a part.
  Expr victim_of(Symbol s, std::size_t target) {
    const std::set<Expr> parents = parents_of(s, from_);
    const bool is_new = !s.is_known() && s.k() == 1 && from_.try_emplace(s.expr(), kNoNode).second;
    const auto found =
        std::ranges::find_if(parents, [&](Expr e) { return ending_.contains(e) && !is_needed(e, target); });
    if (is_new) from_.erase(s.expr());
    return found == parents.end() ? kNoExpr : *found;
  }

  /// A target that takes the pebble of an old value.
  bool one_in_place() {
    for (const std::size_t t : open_)
      if (const Expr victim = victim_of(value_of(t), t); victim != kNoExpr) {
        settle_one(t, victim);
        return true;
      }
    return false;
  }
  /// A target that has nothing to do with old values, but with those that another target is to hold as they are.
  bool one_beside() {
    const auto is_kept = [&](Expr e) {
      return std::ranges::any_of(open_, [&](std::size_t t) { return value_of(t) == Symbol(1, e); });
    };
    for (const std::size_t t : open_) {
      const std::set<Expr> parents = parents_of(value_of(t), from_);
      if (std::ranges::any_of(
              parents, [&](Expr e) { return ending_.contains(e) && (!is_kept(e) || value_of(t) == Symbol(1, e)); }))
        continue;
      settle_one(t, kNoExpr);
      return true;
    }
    return false;
  }
  void settle_one(std::size_t t, Expr victim) {
    const Symbol s = value_of(t);
    const std::set<Expr> parents = parents_of(s, from_);
    std::erase(open_, t);
    if (victim != kNoExpr && s == Symbol(1, victim)) {  // it is there
      targets_[t].node = from_.at(victim);
      return forget(victim);
    }
    targets_[t].node = compute(s, targets_[t].kind, victim);
    if (!s.is_known() && s.k() == 1 && from_.try_emplace(s.expr(), targets_[t].node).second) results_.insert(s.expr());
    release_unneeded(parents);
  }
  Node compute(Symbol s, const std::string& kind, Expr victim) {
    const Node v = live_.add(recipe_for(s, from_), kind);
    live_.compute(v, victim == kNoExpr ? kNoNode : from_.at(victim));
    if (victim != kNoExpr) forget(victim);
    return v;
  }

  /// Parts of open targets that are not there, with the number of targets that have them.
  std::map<Expr, std::size_t> open_parts() const {
    std::map<Expr, std::size_t> users;
    for (const std::size_t t : open_) {
      std::set<Expr> own;
      collect(value_of(t), from_, false, own);
      for (const Expr e : own) ++users[e];
    }
    return users;
  }
  /// A part that takes the pebble of an old value: all need that one for this part only.
  bool part_in_place() {
    for (const auto& [e, users] : open_parts())
      if (const Expr victim = victim_of({1, e}, targets_.size()); victim != kNoExpr) {
        add_part(e, victim);
        return true;
      }
    return false;
  }
  /// The part that most targets have, if several have one.
  bool new_part() {
    const auto users = open_parts();
    const auto most = std::ranges::max_element(users, {}, [](const auto& part) { return part.second; });
    if (most == users.end() || most->second < 2) return false;
    add_part(most->first, kNoExpr);
    return true;
  }
  void add_part(Expr e, Expr victim) {
    const std::set<Expr> parents = parents_of({1, e}, from_);
    from_.emplace(e, compute({1, e}, {}, victim));
    ending_.insert(e);
    parts_.insert(e);
    release_unneeded(parents);
  }

  LiveGraph& live_;
  std::vector<Target>& targets_;
  Holders& from_;
  std::set<Expr> ending_;  ///< old values, and parts
  std::set<Expr> parts_;
  std::set<Expr> results_;  ///< targets that serve others as parts
  std::vector<std::size_t> open_;
};

/// Targets that have nothing to do with each other's old values, apart: their numbers.
std::vector<std::vector<std::size_t>> groups_of(const std::vector<Target>& targets, const Holders& from,
                                                const std::set<Expr>& ending) {
  std::vector<std::size_t> group(targets.size());
  std::map<Expr, std::size_t> group_of;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    group[t] = t;
    for (const Expr e : parents_of(targets[t].value, from)) {
      if (!ending.contains(e)) continue;
      const std::size_t other = group_of.try_emplace(e, group[t]).first->second;
      const std::size_t merged = std::min(other, group[t]), gone = std::max(other, group[t]);
      std::ranges::replace(group.begin(), group.begin() + static_cast<std::ptrdiff_t>(t) + 1, gone, merged);
      for (auto& [expr, g] : group_of) g = g == gone ? merged : g;
    }
  }
  std::map<std::size_t, std::vector<std::size_t>> members;
  for (std::size_t t = 0; t < targets.size(); ++t) members[group[t]].push_back(t);
  std::vector<std::vector<std::size_t>> groups;
  groups.reserve(members.size());
  for (auto& [g, list] : members) groups.push_back(std::move(list));
  return groups;
}

}  // namespace

void settle(LiveGraph& live, std::vector<Target>& targets, Holders& from, const std::vector<Expr>& ending) {
  const std::set<Expr> all(ending.begin(), ending.end());
  std::set<Expr> unused = all;
  std::vector<std::pair<std::vector<std::size_t>, std::set<Expr>>> parts;
  for (auto& members : groups_of(targets, from, all)) {
    std::set<Expr> own;
    for (const std::size_t t : members)
      for (const Expr e : parents_of(targets[t].value, from))
        if (all.contains(e)) own.insert(e);
    for (const Expr e : own) unused.erase(e);
    parts.emplace_back(std::move(members), std::move(own));
  }
  for (const Expr e : unused) {
    live.release(from.at(e));
    from.erase(e);
  }
  // Known numbers last: until then the old values of their words may serve.
  std::ranges::stable_partition(parts, [&](const auto& part) { return !targets[part.first[0]].value.is_known(); });
  for (auto& [members, own] : parts) Settling(live, targets, std::move(members), from, std::move(own)).run();
}

}  // namespace redblue::pebbling
