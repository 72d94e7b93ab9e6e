#include "redblue/pebbling/play/expand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "redblue/language/error.hpp"
#include "redblue/pebbling/play/record.hpp"
#include "redblue/pebbling/play/settle.hpp"
#include "redblue/pebbling/play/stars.hpp"

namespace redblue::pebbling {
namespace {

/// Words of a tile, or that pass, as symbols.
struct Memory {
  std::vector<Symbol> before;
  std::vector<Symbol> now;
};

/// A word that a kernel changes. What it is to hold is a sum of pieces, some of which wait for words that pass.
struct Change {
  Word* word;
  Symbol old;
  std::string name;
  std::map<PassingSet, std::vector<Symbol>> pieces{};
  bool is_chain = true;         ///< are the terms added one by one, apart from all other changes?
  bool has_begun = false;       ///< is the old value of no use but as a term?
  std::optional<Symbol> sum{};  ///< what the word holds of it
};

struct Passing {
  Word* slow;
  Symbol symbol;
  std::size_t operand;
  bool is_updated;
  Word fast{};
};

bool is_same(Symbol a, Symbol b) { return a == b && (!a.is_known() || std::signbit(a.k()) == std::signbit(b.k())); }

class Call {
 public:
  Call(LiveGraph& live, const kernel::AnyKernel& k, std::span<Operand> operands, bool updates)
      : live_(live), kernel_(k), operands_(operands), updates_(updates) {}

  void play() {
    std::vector<View<Symbol>> views;
    views.reserve(operands_.size());
    for (std::size_t i = 0; i < operands_.size(); ++i) views.push_back(view_of(i));
    record(kernel_, views);
    find_changes();
    plan();
    for (std::size_t i = 0; i < stays_.size(); ++i) play_stay(i);
  }

 private:
  [[noreturn]] void fail(std::string_view why) const {
    throw Error(fmt::format("kernel {} cannot be played word by word: {}", kernel_.name(), why));
  }

  // ---- Words become symbols ----

  Symbol symbol_of(const Word& w) {
    if (!w.holds()) return expressions_.undefined();
    if (live_.graph().op(w.node) == Op::constant) return live_.graph().constant(w.node);
    return expressions_.leaf(live_.value(w.node));
  }
  View<Symbol> view_of(std::size_t i) {
    Operand& x = operands_[i];
    if (x.shape.words() == 0) return {nullptr, x.shape, x.shape.cols};
    if (x.tile == nullptr) return {passing_memory(i).now.data(), x.shape, x.shape.cols};
    return {tile_memory(*x.tile).now.data() + x.row * x.tile->shape.cols + x.col, x.shape, x.tile->shape.cols};
  }
  Memory& tile_memory(WordTile& t) {
    for (auto& [tile, known] : tiles_)
      if (tile == &t) return known;
    Memory& m = tiles_.emplace_back(&t, Memory()).second;
    for (const Word& w : t.words) {
      m.before.push_back(symbol_of(w));
      if (w.holds() && !m.before.back().is_known()) from_.emplace(m.before.back().expr(), w.node);
    }
    m.now = m.before;
    return m;
  }
  Memory& passing_memory(std::size_t operand) {
    Memory& m = streams_.emplace_back();
    const bool is_updated = updates_ && operand == 0;
    for (Word* slow : operands_[operand].passing) {
      const bool is_unread = is_updated && kernel_.first();
      if (!is_unread && slow->node == kNoNode) fail("it reads a word of slow memory that was never written");
      m.now.push_back(is_unread ? expressions_.undefined() : symbol_of(*slow));
      if (!m.now.back().is_known()) passing_numbers_.emplace(m.now.back().expr(), passing_.size());
      passing_.push_back({slow, m.now.back(), operand, is_updated});
    }
    return m;
  }

  // ---- What the kernel changes ----

  void find_changes() {
    std::vector<Symbol> values;
    for (auto& [tile, m] : tiles_)
      for (std::size_t i = 0; i < m.now.size(); ++i) {
        if (is_same(m.now[i], m.before[i])) continue;
        changes_.push_back({&tile->words[i], m.before[i], std::string(tile->name)});
        values.push_back(m.now[i]);
      }
    for (std::size_t i = 0; i < passing_.size() && passing_[i].is_updated; ++i) {
      changes_.push_back({&passing_[i].fast, passing_[i].symbol, std::string(operands_[0].name)});
      values.push_back(streams_.front().now[i]);
    }
    for (std::size_t i = 0; i < changes_.size(); ++i)
      if (!changes_[i].old.is_known()) changes_of_.emplace(changes_[i].old.expr(), i);
    for (std::size_t i = 0; i < changes_.size(); ++i) cut(i, values[i]);
  }
  /// Cuts the value into pieces: terms with the old one first.
  void cut(std::size_t number, Symbol value) {
    Change& c = changes_[number];
    std::vector<Symbol> own, others;
    for (const Symbol& term : terms_of(value)) {
      bool is_own = false;
      for (const Expr e : leaves_of(term)) {
        const auto changed = changes_of_.find(e);
        if (changed == changes_of_.end()) continue;
        is_own = is_own || changed->second == number;
        if (changed->second != number) c.is_chain = changes_[changed->second].is_chain = false;
      }
      (is_own ? own : others).push_back(term);
    }
    c.is_chain = c.is_chain && own.size() <= 1;
    own.insert(own.end(), others.begin(), others.end());
    for (const Symbol& term : own) c.pieces[passing_in(term, c)].push_back(term);
  }
  PassingSet passing_in(Symbol term, const Change& c) {
    PassingSet all;
    for (const Expr e : leaves_of(term))
      if (const auto at = passing_numbers_.find(e); at != passing_numbers_.end()) all.insert(at->second);
    for (std::size_t i = 0; i < passing_.size() && passing_[i].is_updated; ++i)
      if (&passing_[i].fast == c.word) all.insert(i);
    for (const PassingWord a : all)
      for (const PassingWord b : all)
        if (a != b && passing_[a].operand == passing_[b].operand) fail("it needs two words of one stream together");
    return all;
  }
  std::set<Expr> leaves_of(Symbol s) {
    std::set<Expr> all;
    add_leaves(s, all);
    return all;
  }
  void add_leaves(Symbol s, std::set<Expr>& all) {
    if (s.is_known()) return;
    const Expression& e = expressions_[s.expr()];
    if (e.is(Expression::Kind::undefined)) fail("it uses a word that nobody has written");
    if (e.is(Expression::Kind::leaf)) all.insert(s.expr());
    for (const Symbol& a : e.args) add_leaves(a, all);
  }

  // ---- In which order ----

  void plan() {
    std::set<PassingSet> sets;
    for (const Change& c : changes_)
      for (const auto& [set, terms] : c.pieces)
        if (!set.empty()) sets.insert(set);
    auto stays = stays_of(passing_.size(), sets);
    if (!stays) fail("no order of its streams has the words together that belong together");
    stays_ = std::move(*stays);
    // What needs no passing word comes first, unless words that pass meet what it changes.
    const bool is_late = std::ranges::any_of(changes_, [&](const Change& c) {
      return is_plain(c) && !c.old.is_known() && std::ranges::any_of(changes_, [&](const Change& other) {
               return !is_plain(other) && uses(other, c.old.expr());
             });
    });
    stays_.insert(is_late ? stays_.end() : stays_.begin(), Stay{.sets = {PassingSet()}});
    for (std::size_t i = 0; i < stays_.size(); ++i)
      for (const Change& c : changes_)
        for (const auto& [set, terms] : c.pieces)
          if (stays_[i].sets.contains(set) && (!set.empty() || is_plain(c)))
            for (const Symbol& term : terms)
              for (const Expr e : leaves_of(term)) last_use_[e] = std::max(last_use_[e], i);
    for (Change& c : changes_) {  // what needs no passing word comes with the first that does
      if (is_plain(c) || !c.pieces.contains({})) continue;
      const auto base = c.pieces.extract(PassingSet());
      const std::size_t first = first_stay(c);
      for (const PassingSet& set : stays_[first].sets)
        if (const auto at = c.pieces.find(set); at != c.pieces.end()) {
          at->second.insert(at->second.begin(), base.mapped().begin(), base.mapped().end());
          break;
        }
      for (const Symbol& term : base.mapped())
        for (const Expr e : leaves_of(term)) last_use_[e] = std::max(last_use_[e], first);
    }
  }
  static bool is_plain(const Change& c) { return c.pieces.size() == 1 && c.pieces.begin()->first.empty(); }
  bool uses(const Change& c, Expr leaf) {
    return std::ranges::any_of(c.pieces, [&](const auto& piece) {
      return std::ranges::any_of(piece.second, [&](Symbol term) { return leaves_of(term).contains(leaf); });
    });
  }
  std::size_t first_stay(const Change& c) const {
    for (std::size_t i = 0; i < stays_.size(); ++i)
      if (has_pieces(c, stays_[i])) return i;
    return 0;
  }
  static bool has_pieces(const Change& c, const Stay& stay) {
    return std::ranges::any_of(c.pieces, [&](const auto& piece) { return stay.sets.contains(piece.first); });
  }

  // ---- The moves ----

  void play_stay(std::size_t i) {
    for (const PassingWord w : stays_[i].begin) begin(passing_[w]);
    std::vector<Change*> together;
    for (Change& c : changes_) {
      const std::vector<Symbol> terms = terms_at(c, stays_[i]);
      if (terms.empty()) continue;
      forget_known(c);
      if (c.is_chain)
        play_chain(c, terms, i);
      else
        together.push_back(&c);
    }
    play_together(together, i);
    for (const PassingWord w : stays_[i].end) end(passing_[w]);
  }
  static std::vector<Symbol> terms_at(const Change& c, const Stay& stay) {
    std::vector<Symbol> terms;
    for (const auto& [set, some] : c.pieces)
      if (stay.sets.contains(set)) terms.insert(terms.end(), some.begin(), some.end());
    return terms;
  }
  void begin(Passing& p) {
    if (p.is_updated && kernel_.first()) return;
    live_.read(p.slow->node);
    p.fast = *p.slow;
    if (!p.symbol.is_known()) from_.emplace(p.symbol.expr(), p.fast.node);
  }
  void end(Passing& p) {
    if (p.is_updated) {
      live_.write(p.fast.node);
      *p.slow = p.fast;
    }
    if (!p.symbol.is_known()) from_.erase(p.symbol.expr());
    live_.release(p.fast.node);
    p.fast = {};
  }
  /// A known number that the word holds serves for nothing, as room does.
  void forget_known(Change& c) {
    const bool serves = !c.old.is_known() && !c.word->is_room;
    if (std::exchange(c.has_begun, true) || serves || c.word->node == kNoNode) return;
    live_.release(c.word->node);
    *c.word = {};
  }
  void play_chain(Change& c, const std::vector<Symbol>& terms, std::size_t stay) {
    for (const Symbol& term : terms) {
      if (!c.sum && term == c.old && !c.old.is_known()) {
        c.sum = c.old;
        continue;
      }
      std::vector<Target> one{{c.sum ? *c.sum + term : term, c.name}};
      std::vector<Expr> ending;
      if (c.sum) ending.push_back(c.sum->expr());
      if (may_end(c.old, stay) && c.sum != c.old) ending.push_back(c.old.expr());
      settle(live_, one, from_, ending);
      hold(c, one[0].node);
    }
  }
  bool may_end(Symbol old, std::size_t stay) const {
    if (old.is_known() || !from_.contains(old.expr())) return false;
    const auto last = last_use_.find(old.expr());
    return last == last_use_.end() || last->second <= stay;
  }
  void hold(Change& c, Node v) {
    *c.word = {.node = v};
    c.sum = expressions_.leaf(live_.value(v));
    from_.emplace(c.sum->expr(), v);
  }
  void play_together(const std::vector<Change*>& changes, std::size_t stay) {
    std::vector<Target> targets;
    std::vector<Change*> changing;
    std::vector<Expr> ending;
    for (Change* c : changes) {
      std::vector<Symbol> terms = terms_at(*c, stays_[stay]);
      if (c->sum) terms.insert(terms.begin(), *c->sum);
      const Symbol value = terms.size() == 1 ? terms[0] : sum_of(terms);
      if (value == c->old && !value.is_known()) {
        c->sum = value;
        continue;
      }
      if (c->sum && c->sum != c->old) ending.push_back(c->sum->expr());
      targets.push_back({value, c->name});
      changing.push_back(c);
    }
    for (Change& c : changes_) {
      const bool is_kept = c.sum == c.old && std::ranges::find(changing, &c) == changing.end();
      if (!c.is_chain && !is_kept && may_end(c.old, stay)) ending.push_back(c.old.expr());
    }
    settle(live_, targets, from_, ending);
    for (std::size_t i = 0; i < targets.size(); ++i) hold(*changing[i], targets[i].node);
  }

  LiveGraph& live_;
  const kernel::AnyKernel& kernel_;
  std::span<Operand> operands_;
  bool updates_;
  Expressions expressions_;
  Holders from_;  ///< what words hold now
  std::deque<std::pair<WordTile*, Memory>> tiles_;
  std::deque<Memory> streams_;
  std::vector<Passing> passing_;
  std::map<Expr, PassingWord> passing_numbers_;
  std::vector<Change> changes_;
  std::map<Expr, std::size_t> changes_of_;  ///< by the old value
  std::vector<Stay> stays_;
  std::map<Expr, std::size_t> last_use_;  ///< the last stay that needs a value
};

}  // namespace

void expand(LiveGraph& live, const kernel::AnyKernel& k, std::span<Operand> operands, bool updates) {
  Call(live, k, operands, updates).play();
}

}  // namespace redblue::pebbling
