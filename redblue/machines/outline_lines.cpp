#include "redblue/machines/outline_lines.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace redblue::machine {

namespace {

/// Adds to a hash, by the finaliser of splitmix64.
void mix(std::size_t& hash, std::size_t more) {
  std::uint64_t x = hash + 0x9e3779b97f4a7c15u + more;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  hash = x ^ x >> 31;
}

}  // namespace

void set_hashes(OutlineLine& line) {
  std::size_t hash = static_cast<std::size_t>(line.kind) * 2 + (line.independent ? 1 : 0);
  mix(hash, std::hash<std::string>()(line.kernel));
  for (const Operand& o : line.operands) {
    mix(hash, std::hash<std::string>()(o.tile));
    mix(hash, index_of(o.array));
  }
  line.exact = line.loose = hash;
  mix(line.exact, static_cast<std::size_t>(line.most));
  for (const OutlineLine& inner : line.body) {
    mix(line.exact, inner.exact);
    mix(line.loose, inner.loose);
  }
}

namespace {

enum class Rounds : std::uint8_t { equal, any };

/// Do two lines do the same, whatever their shapes and positions? Loops: with equal numbers of rounds, or with any.
bool same(const OutlineLine& a, const OutlineLine& b, Rounds rounds) {
  if (rounds == Rounds::equal ? a.exact != b.exact : a.loose != b.loose) return false;
  const auto equal_operands = [](const Operand& x, const Operand& y) { return x.tile == y.tile && x.array == y.array; };
  return a.kind == b.kind && a.independent == b.independent && a.kernel == b.kernel &&
         (rounds == Rounds::any || a.most == b.most) &&
         std::equal(a.operands.begin(), a.operands.end(), b.operands.begin(), b.operands.end(), equal_operands) &&
         std::equal(a.body.begin(), a.body.end(), b.body.begin(), b.body.end(),
                    [rounds](const OutlineLine& x, const OutlineLine& y) { return same(x, y, rounds); });
}

/// Do these lines do what the body of a loop does?
bool same(std::span<const OutlineLine> lines, std::span<const OutlineLine> body, Rounds rounds) {
  return std::equal(lines.begin(), lines.end(), body.begin(), body.end(),
                    [rounds](const OutlineLine& a, const OutlineLine& b) { return same(a, b, rounds); });
}

/// Takes in where it is in the round number `round` of a loop around it; `inside` loops are between them. It goes as
/// far with each round of those as before, but for a loop that had one round then or has one now: it shows no step.
/// With each round of the loops around that one it goes as far as before, too.
void step(Position& p, const Position& later, index_t round, std::size_t inside) {
  const auto meets = [&p](index_t a, index_t b) {
    const bool wraps = a != b && p.rows > 0 && (a - b) % p.rows == 0;
    p.wraps = p.wraps || wraps;
    return a == b || wraps;
  };
  const auto keeps = [&](index_t& step, index_t now) {
    if (step == kNoStep) step = now;
    return now == kNoStep || meets(step, now);
  };
  p.wraps = p.wraps || later.wraps;
  p.regular = p.regular && later.regular;
  const std::size_t inner = std::min({inside, p.steps.size(), later.steps.size()});
  for (std::size_t k = 0; k < inner; ++k) p.regular = keeps(p.steps[k], later.steps[k]) && p.regular;
  const auto own = static_cast<std::ptrdiff_t>(std::min(inside, p.steps.size()));
  if (round == 1) p.steps.insert(p.steps.begin() + own, later.first - p.first);
  p.regular = p.regular && p.steps.size() > inside && meets(later.first, p.first + p.steps[inside] * round);
  const std::size_t outer = p.steps.size() - std::min(p.steps.size(), inside + 1);
  if (outer != later.steps.size() - std::min(later.steps.size(), inside)) p.regular = false;
  for (std::size_t k = 0; p.regular && k < outer; ++k)
    p.regular = keeps(p.steps[inside + 1 + k], later.steps[inside + k]);
}

/// Takes from `later` how far its blocks go with each round of a loop; `between` are the loops inside it, around them.
void take_steps(OutlineLines& lines, const OutlineLines& later, std::size_t between) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t k = 0; k < lines[i].operands.size(); ++k) {
      Operand& o = lines[i].operands[k];
      const Operand& from = later[i].operands[k];
      if (between < o.row.steps.size() && between < from.row.steps.size()) {
        o.row.steps[between] = from.row.steps[between];
        o.col.steps[between] = from.col.steps[between];
      }
    }
    if (between < lines[i].rounds.steps.size() && between < later[i].rounds.steps.size())
      lines[i].rounds.steps[between] = later[i].rounds.steps[between];
    take_steps(lines[i].body, later[i].body, between + 1);
  }
}

}  // namespace

void stand_still(OutlineLines& lines) {
  for (OutlineLine& line : lines) {
    for (Operand& o : line.operands) {
      o.row.steps.push_back(kNoStep);
      o.col.steps.push_back(kNoStep);
    }
    line.rounds.steps.push_back(kNoStep);
    stand_still(line.body);
  }
}

namespace {

/// Adds what happened at the same place in the round number `round` of a loop, of which `line` holds those before.
void absorb(OutlineLine& line, const OutlineLine& later, index_t round, std::size_t inside = 0) {
  line.times += later.times;
  line.reads += later.reads;
  line.bytes += later.bytes;
  line.writes += later.writes;
  line.macs += later.macs;
  line.resident = std::max(line.resident, later.resident);
  for (std::size_t i = 0; i < line.operands.size(); ++i) {
    Operand& o = line.operands[i];
    const Operand& now = later.operands[i];
    o.last = now.last;
    if (round == 1) {
      o.whole = now.whole;
      o.usual = now.usual;
    }
    step(o.row, now.row, round, inside);
    step(o.col, now.col, round, inside);
  }
  std::erase_if(line.parameters, [&](const auto& p) {
    return std::find(later.parameters.begin(), later.parameters.end(), p) == later.parameters.end();
  });
  step(line.rounds, later.rounds, round, inside);
  if (line.most < 2 && later.most >= 2) take_steps(line.body, later.body, 0);
  line.fewest = std::min(line.fewest, later.fewest);
  line.most = std::max(line.most, later.most);
  for (std::size_t i = 0; i < line.body.size(); ++i) absorb(line.body[i], later.body[i], round, inside + 1);
}

}  // namespace

OutlineLine loop_of(OutlineLines body, bool independent, index_t rounds) {
  OutlineLine loop{.independent = independent, .fewest = rounds, .most = rounds};
  loop.rounds.first = rounds;
  loop.body = std::move(body);
  set_hashes(loop);
  return loop;
}

namespace {

/// Folds what repeats at the end of the lines into a loop, or into the loop before it.
bool fold_once(OutlineLines& lines, Rounds rounds) {
  constexpr std::size_t kLongestBody = 64;
  const std::size_t n = lines.size();
  for (std::size_t p = 1; p <= kLongestBody && p < n; ++p) {
    const std::span<const OutlineLine> last = std::span(lines).last(p);
    OutlineLine& before = lines[n - p - 1];
    if (before.kind == LineKind::loop && !before.independent && same(last, before.body, rounds)) {
      for (std::size_t i = 0; i < p; ++i) absorb(before.body[i], last[i], before.most);
      before.rounds.first = before.fewest = ++before.most;
      set_hashes(before);
      lines.resize(n - p);
      return true;
    }
    if (n < 2 * p || !same(last, std::span(lines).subspan(n - 2 * p, p), rounds)) continue;
    OutlineLines body(std::make_move_iterator(lines.end() - static_cast<std::ptrdiff_t>(2 * p)),
                      std::make_move_iterator(lines.end() - static_cast<std::ptrdiff_t>(p)));
    for (std::size_t i = 0; i < p; ++i) absorb(body[i], last[i], 1);
    lines.resize(n - 2 * p);
    lines.push_back(loop_of(std::move(body), false, 2));
    return true;
  }
  return false;
}

void append_folded(OutlineLines& lines, OutlineLine line, Rounds rounds) {
  lines.push_back(std::move(line));
  while (fold_once(lines, rounds)) {
  }
}

}  // namespace

void append(OutlineLines& lines, OutlineLine line) { append_folded(lines, std::move(line), Rounds::equal); }

OutlineLines folded(OutlineLines lines) {
  OutlineLines result;
  for (OutlineLine& line : lines) {
    if (line.kind == LineKind::loop && !line.independent) {
      line.body = folded(std::move(line.body));
      set_hashes(line);
    }
    append_folded(result, std::move(line), Rounds::any);
  }
  return result;
}

namespace {

/// In this round of the loop around them there is an inner loop that had one round before, and so was not seen as a
/// loop. `line` stands in the inner loop; `before` is the same line in the rounds before. Adds `before` to `line`.
void precede(OutlineLine& line, const OutlineLine& before, index_t round) {
  const OutlineLine later = line;
  const auto set_back = [](Position& p, const Position& from) {
    p.first = from.first;
    p.regular = p.regular && from.regular;
    p.wraps = p.wraps || from.wraps;
    p.steps.insert(p.steps.end(), from.steps.begin(), from.steps.end());
  };
  const auto restart = [&](const auto& self, OutlineLine& l, const OutlineLine& from) -> void {
    l.times = from.times;
    l.reads = from.reads;
    l.bytes = from.bytes;
    l.writes = from.writes;
    l.macs = from.macs;
    l.fewest = from.fewest;
    l.most = from.most;
    set_back(l.rounds, from.rounds);
    for (std::size_t i = 0; i < l.operands.size(); ++i) {
      l.operands[i].first = from.operands[i].first;
      l.operands[i].usual = from.operands[i].usual;
      l.operands[i].whole = from.operands[i].whole;
      set_back(l.operands[i].row, from.operands[i].row);
      set_back(l.operands[i].col, from.operands[i].col);
    }
    for (std::size_t i = 0; i < l.body.size(); ++i) self(self, l.body[i], from.body[i]);
  };
  restart(restart, line, before);
  absorb(line, later, round, 1);
}

}  // namespace

bool absorb_all(OutlineLines& lines, const OutlineLines& later, index_t round) {
  if (!same(later, lines, Rounds::any)) return false;
  for (std::size_t i = 0; i < lines.size(); ++i) absorb(lines[i], later[i], round);
  return true;
}

bool unify(OutlineLines& lines, const OutlineLines& later, index_t round) {
  std::size_t i = 0, j = 0;
  const auto is_loop = [](const OutlineLines& list, std::size_t at) {
    return at < list.size() && list[at].kind == LineKind::loop && !list[at].independent;
  };
  const auto starts_with = [](const OutlineLines& list, std::size_t at, const OutlineLines& body) {
    return at + body.size() <= list.size() && same(std::span(list).subspan(at, body.size()), body, Rounds::any);
  };
  while (i < lines.size() || j < later.size()) {
    if (i < lines.size() && j < later.size() && same(lines[i], later[j], Rounds::any)) {
      absorb(lines[i++], later[j++], round);
    } else if (is_loop(later, j)) {
      OutlineLine loop = later[j++];
      if (!starts_with(lines, i, loop.body)) return false;  // how far it goes with each round could not be known
      loop.fewest = 1;
      loop.rounds.steps.push_back(loop.rounds.first - 1);
      loop.rounds.first = 1;
      loop.rounds.regular = round == 1;
      const auto begin = lines.begin() + static_cast<std::ptrdiff_t>(i);
      const auto end = begin + static_cast<std::ptrdiff_t>(loop.body.size());
      for (auto line = begin; line != end; ++line)
        precede(loop.body[static_cast<std::size_t>(line - begin)], *line, round);
      lines.erase(begin, end);
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(i++), std::move(loop));
    } else if (is_loop(lines, i) && round > 1) {
      OutlineLine& loop = lines[i++];
      const bool once = starts_with(later, j, loop.body);
      loop.fewest = std::min<index_t>(loop.fewest, once ? 1 : 0);
      loop.rounds.regular = false;
      if (once)
        for (OutlineLine& inner : loop.body) absorb(inner, later[j++], round);
    } else {
      return false;
    }
  }
  return true;
}

bool alike(const OutlineLines& a, const OutlineLines& b) {
  const auto operands = [](const Operand& x, const Operand& y) {
    return x.whole == y.whole && x.first == y.first && x.usual == y.usual && x.last == y.last &&
           x.row.steps == y.row.steps && x.col.steps == y.col.steps;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const OutlineLine& x, const OutlineLine& y) {
    return same(x, y, Rounds::equal) && x.times == y.times && x.reads == y.reads && x.writes == y.writes &&
           x.macs == y.macs && x.resident == y.resident && x.fewest == y.fewest &&
           std::ranges::equal(x.operands, y.operands, operands) && alike(x.body, y.body);
  });
}

void multiply(OutlineLines& lines, Words times) {
  for (OutlineLine& line : lines) {
    line.times = line.times * times;
    line.reads = line.reads * times;
    line.bytes = line.bytes * times;
    line.writes = line.writes * times;
    line.macs = line.macs * times;
    multiply(line.body, times);
  }
}

}  // namespace redblue::machine
