#include "redblue/machines/outline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "redblue/kernels/registry.hpp"
#include "redblue/language/error.hpp"
#include "redblue/machines/outline_lines.hpp"

namespace redblue::machine {

namespace {

std::vector<std::pair<std::string, double>> named_parameters(const kernel::AnyKernel& k) {
  std::vector<std::pair<std::string, double>> list;
  const std::vector<double> values = k.parameters();
  list.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) list.emplace_back(k.kind().parameter_names[i], values[i]);
  return list;
}

}  // namespace

index_t Outliner::open(SlowArray array, Shape s, Layout layout) {
  std::string base(name_of(array)), name;
  std::transform(base.begin(), base.end(), base.begin(), [](unsigned char c) { return std::tolower(c); });
  for (int n = 1; name.empty(); ++n) {
    std::string candidate = n == 1 ? base : base + std::to_string(n);
    if (std::none_of(tiles_.begin(), tiles_.end(), [&](const Held& t) { return t.name == candidate; }))
      name = std::move(candidate);
  }
  const bool below = scratch_ == Scratch::below && layout == Layout::panel_scratch;
  const Words own = below ? 0 : fast_.tile(array, s.rows, s.cols);
  resident_ += own;
  tiles_.push_back({std::move(name), array, s, own, resident_, s.words() > 0});
  return static_cast<index_t>(tiles_.size()) - 1;
}

void Outliner::close(index_t, SlowArray array, Shape s) {
  announce();
  OutlineLine line{.kind = LineKind::evict};
  line.operands = {{tiles_.back().name, array, s, s, s, s, {}, {}}};
  resident_ -= tiles_.back().own;
  tiles_.pop_back();
  if (s.words() > 0) add(std::move(line));
}

void Outliner::read(const Arg& tile, const Block& b) {
  if (b.shape.words() == 0) return;
  Held& held = tiles_[static_cast<std::size_t>(tile.depth)];
  const bool load = held.fresh && &held == &tiles_.back() && tile.shape() == held.shape;
  if (load) held.fresh = false;
  announce();
  OutlineLine line{.kind = load ? LineKind::load : LineKind::refill};
  line.operands = {operand_of(tile), operand_of(Arg::streaming(b))};
  add_read(line, b);
  add(std::move(line));
}

void Outliner::write(const Block& b, const Arg& tile) {
  if (b.shape.words() == 0) return;
  announce();
  OutlineLine line{.kind = LineKind::store};
  line.operands = {operand_of(Arg::streaming(b)), operand_of(tile)};
  add_write(line, b);
  add(std::move(line));
}

void Outliner::add_run(const kernel::AnyKernel& k, std::span<const Arg> args) {
  announce();
  kernel::for_parts(k, args, [&](const kernel::AnyKernel& part, std::span<const Arg> part_args) {
    add_kernel(LineKind::compute, part, part_args);
  });
}

void Outliner::add_update(const kernel::AnyKernel& k, std::span<const Arg> args) {
  announce();
  add_kernel(LineKind::update, k, args);
}

OutlineLines Outliner::round_of(const std::function<void(Outliner&, index_t)>& body, index_t i, Words weight) {
  const Words outer = std::exchange(weight_, weight);
  sequences_.emplace_back();
  body(*this, i);
  OutlineLines lines = folded(std::move(sequences_.back()));
  sequences_.pop_back();
  weight_ = outer;
  return lines;
}

void Outliner::each(index_t n, const std::function<void(Outliner&, index_t)>& body) {
  announce();
  OutlineLine loop;
  bool moves = false;  // do the lines of the loop know how far they go with each round?
  const auto end_loop = [&] {
    if (loop.most == 0) return;
    if (!moves) stand_still(loop.body);
    add(std::move(loop));
  };
  const auto take = [&](OutlineLines lines, index_t rounds) {
    multiply(lines, rounds);
    const bool follows = moves || loop.most == 1;
    bool joined = follows && absorb_all(loop.body, lines, loop.most);
    if (follows && !joined) {
      OutlineLines merged = loop.body;
      joined = unify(merged, lines, loop.most);
      if (joined) loop.body = std::move(merged);
    }
    if (joined) {
      loop.rounds.first = loop.fewest = loop.most = loop.most + rounds;
      set_hashes(loop);
      moves = true;
    } else {
      end_loop();
      loop = loop_of(std::move(lines), true, rounds);
      moves = false;
    }
  };
  /// The last round that does the same as round i.
  const auto last_alike = [&](index_t i, const OutlineLines& lines) {
    const auto is_alike = [&](index_t other) { return alike(round_of(body, other, 0), lines); };
    index_t yes = i, no = n;
    for (index_t at = n - 1; yes + 1 < no; at = at > n - 3 ? at - 1 : yes + (no - yes) / 2)
      (is_alike(at) ? yes : no) = at;
    return yes;
  };
  OutlineLines before;
  index_t patience = 1;  // how far to go on before the next search: twice as far after each that found nothing
  for (index_t i = 0, wait = 0; i < n; ++i) {
    const index_t rounds = sample_ == Sample::few && i == 2 && n > 4 ? n - 3 : 1;
    OutlineLines lines = round_of(body, i, weight_ * rounds);
    if (sample_ == Sample::unlike && n > 4) {
      const bool search = i > 0 && --wait < 0 && alike(lines, before);
      before = lines;
      take(std::move(lines), 1);
      if (!search) continue;
      const index_t last = last_alike(i, before);
      if (last - i < 3) {
        wait = patience *= 2;
        continue;
      }
      take(round_of(body, i + 1, weight_ * (last - i - 1)), last - i - 1);
      take(round_of(body, last, weight_), 1);
      i = last;
      continue;
    }
    take(std::move(lines), rounds);
    i += rounds - 1;
  }
  end_loop();
}

namespace {

/// A position has one step for each loop around it. Where an uneven mask folded loops of one round with loops of many,
/// it may not: then where it goes is not known.
void settle(Position& p, std::size_t loops) {
  std::ranges::replace(p.steps, kNoStep, 0);
  if (p.steps.size() == loops) return;
  p.steps.resize(loops);
  p.regular = false;
}
void settle(OutlineLines& lines, std::size_t loops) {
  for (OutlineLine& l : lines) {
    settle(l.rounds, loops);
    for (Operand& o : l.operands) {
      settle(o.row, loops);
      settle(o.col, loops);
    }
    settle(l.body, loops + 1);
  }
}

}  // namespace

std::vector<OutlineLine> Outliner::lines() {
  OutlineLines all = folded(std::move(sequences_.front()));
  settle(all, 0);
  return all;
}

Operand Outliner::operand_of(const Arg& a) const {
  const Block& b = a.block;
  if (a.kind == Arg::Kind::stream) return {"", b.array, {}, b.shape, b.shape, b.shape, {b.row}, {b.col}};
  const Held& tile = tiles_[static_cast<std::size_t>(a.depth)];
  return {tile.name, b.array, tile.shape, b.shape, b.shape, b.shape, {b.row, {}, true, tile.shape.rows}, {b.col}};
}

void Outliner::add_kernel(LineKind kind, const kernel::AnyKernel& k, std::span<const Arg> args) {
  OutlineLine line{.kind = kind, .kernel = std::string(kernel::name_of(k)), .parameters = named_parameters(k)};
  line.macs = kernel::macs(k, args);
  line.operands.reserve(args.size());
  for (std::size_t i = 0; i < args.size(); ++i) {
    const Arg& a = args[i];
    if (a.shape().words() == 0) continue;  // the problem does not have it
    line.operands.push_back(operand_of(a));
    if (a.kind != Arg::Kind::stream) continue;
    const bool written = kind == LineKind::update && i == 0;
    if (!written || !kernel::first_of(k)) add_read(line, a.block);
    if (written) add_write(line, a.block);
  }
  add(std::move(line));
}

void Outliner::add_read(OutlineLine& line, const Block& b) {
  const index_t words = b.shape.words();
  line.reads += words;
  line.bytes += Words(words) * bytes_.read[index_of(b.array)];
  io_.reads[index_of(b.array)] += weight_ * words;
}
void Outliner::add_write(OutlineLine& line, const Block& b) {
  const index_t words = b.shape.words();
  line.writes += words;
  line.bytes += Words(words) * bytes_.written[index_of(b.array)];
  io_.writes[index_of(b.array)] += weight_ * words;
}

void Outliner::announce() {
  for (Held& tile : tiles_) {
    if (!std::exchange(tile.fresh, false)) continue;
    OutlineLine line{.kind = LineKind::alloc};
    const Shape s = tile.shape;
    line.below = tile.own == 0;
    line.operands = {{tile.name, tile.array, s, s, s, s, {}, {}}};
    add(std::move(line), tile.resident);
  }
}

void Outliner::add(OutlineLine line) { add(std::move(line), resident_); }

void Outliner::add(OutlineLine line, Words resident) {
  if (++walked_ > kMostOperations && line.kind != LineKind::evict)  // a tile is evicted by a destructor
    throw InvalidProblem(
        fmt::format("the loop nest takes a walk through more than {} operations: choose fewer queries and keys, which "
                    "have the same nest",
                    kMostOperations));
  if (line.kind != LineKind::loop) line.resident = resident;
  set_hashes(line);
  append(sequences_.back(), std::move(line));
}

}  // namespace redblue::machine
