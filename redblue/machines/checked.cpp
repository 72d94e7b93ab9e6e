#include "redblue/machines/checked.hpp"

#include <fmt/format.h>

namespace redblue::machine {

namespace {

std::string text(const Block& b) {
  return fmt::format("{}[{}:{}, {}:{}]", name_of(b.array), b.row, b.row + b.shape.rows, b.col, b.col + b.shape.cols);
}

bool inside(const Block& b, Shape s) {
  return b.row >= 0 && b.col >= 0 && b.shape.rows >= 0 && b.shape.cols >= 0 && b.row + b.shape.rows <= s.rows &&
         b.col + b.shape.cols <= s.cols;
}

/// Calls f with the flag of each word of the rectangle.
void for_words(std::vector<bool>& known, Shape s, const Block& b,
               const std::function<void(std::vector<bool>::reference)>& f) {
  for (index_t i = b.row; i < b.row + b.shape.rows; ++i)
    for (index_t j = b.col; j < b.col + b.shape.cols; ++j) f(known[static_cast<std::size_t>(i * s.cols + j)]);
}

bool all_known(std::vector<bool>& known, Shape s, const Block& b) {
  bool all = true;
  for_words(known, s, b, [&](auto flag) { all = all && flag; });
  return all;
}

std::string_view name_of(Layout l) { return kLayoutNames[static_cast<std::size_t>(l)]; }

}  // namespace

void Referee::declare(const SlowMatrix& m, bool input, bool must_be_written, bool known) {
  slow_[{m.array, m.instance}] = {m.shape, input, !input && must_be_written,
                                  std::vector<bool>(static_cast<std::size_t>(m.shape.words()), input || known)};
}

Referee::Matrix& Referee::matrix(const Block& b) {
  const auto found = slow_.find({b.array, b.instance});
  if (found == slow_.end())
    throw RuleError(fmt::format("{} of instance {} is not an array of this problem", name_of(b.array), b.instance));
  if (!inside(b, found->second.shape)) throw RuleError(fmt::format("{} reaches outside its matrix", text(b)));
  return found->second;
}

Referee::Resident& Referee::resident(const Arg& tile) {
  if (tile.depth < 0 || tile.depth >= static_cast<index_t>(tiles_.size()))
    throw RuleError(fmt::format("tile {} is not resident", tile.depth));
  Resident& r = tiles_[static_cast<std::size_t>(tile.depth)];
  if (!inside(tile.block, r.shape)) throw RuleError(fmt::format("an argument reaches outside tile {}", tile.depth));
  return r;
}

void Referee::require_room(index_t passing) const {
  if (M_ < used_ + passing) redblue::detail::throw_capacity(used_ + passing, M_);
}

void Referee::open(index_t depth, Shape s, Layout layout) {
  if (depth != static_cast<index_t>(tiles_.size())) throw RuleError("tiles must be born on top of the stack");
  require_room(s.words());
  used_ += s.words();
  tiles_.push_back({s, layout, std::vector<bool>(static_cast<std::size_t>(s.words()), false)});
}

void Referee::close(index_t depth, Shape s) noexcept {
  if (depth + 1 != static_cast<index_t>(tiles_.size()) || tiles_.back().shape != s) {
    in_order_ = false;
    return;
  }
  used_ -= s.words();
  tiles_.pop_back();
}

void Referee::read(const Arg& tile, const Block& b) {
  if (b.shape.words() == 0) return;
  Matrix& m = matrix(b);
  if (b.shape != tile.shape()) throw RuleError(fmt::format("{} does not fill the tile it is loaded into", text(b)));
  if (!all_known(m.known, m.shape, b)) throw RuleError(fmt::format("{} is read before it was written", text(b)));
  Resident& r = resident(tile);
  if (is_only_read(r.layout) && tile.shape() != r.shape)
    throw RuleError(
        fmt::format("{} is loaded into a part of tile {}, which is {}: such a tile is loaded whole, for its "
                    "words may be those of slow memory",
                    text(b), tile.depth, name_of(r.layout)));
  for_words(r.known, r.shape, tile.block, [](auto flag) { flag = true; });
}

void Referee::write(const Block& b, const Arg& tile) {
  if (b.shape.words() == 0) return;
  Matrix& m = matrix(b);
  if (m.input) throw RuleError(fmt::format("{} is an input and must stay as it is", text(b)));
  if (b.shape != tile.shape()) throw RuleError(fmt::format("the tile stored to {} has another shape", text(b)));
  require_known(tile, "store");
  for_words(m.known, m.shape, b, [](auto flag) { flag = true; });
}

void Referee::require_known(const Arg& a, std::string_view who) {
  if (a.shape().words() == 0) return;
  if (a.kind == Arg::Kind::stream) {
    Matrix& m = matrix(a.block);
    if (!all_known(m.known, m.shape, a.block))
      throw RuleError(fmt::format("{} reads {} before it was written", who, text(a.block)));
    return;
  }
  Resident& r = resident(a);
  if (!all_known(r.known, r.shape, a.block))
    throw RuleError(fmt::format("{} reads words of tile {} that hold nothing yet", who, a.depth));
}

void Referee::mark_known(const Arg& a, std::string_view who) {
  if (a.shape().words() == 0) return;
  if (a.kind == Arg::Kind::stream) {
    Matrix& m = matrix(a.block);
    if (m.input) throw RuleError(fmt::format("{} writes {}, an input", who, text(a.block)));
    for_words(m.known, m.shape, a.block, [](auto flag) { flag = true; });
    return;
  }
  Resident& r = resident(a);
  if (is_only_read(r.layout))
    throw RuleError(fmt::format("{} writes tile {}, which is {}: its words may be those of slow memory", who, a.depth,
                                name_of(r.layout)));
  for_words(r.known, r.shape, a.block, [](auto flag) { flag = true; });
}

void Referee::check(const kernel::AnyKernel& k, std::span<const Arg> args) {
  if (!k.fits(args)) throw RuleError(fmt::format("the shapes given to {} do not go together", k.name()));
  require_room(passing(args));
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (kernel::access_of(k, i) != kernel::Access::write) require_known(args[i], k.name());
  }
  for (std::size_t i = 0; i < args.size(); ++i)
    if (kernel::access_of(k, i) != kernel::Access::read) mark_known(args[i], k.name());
}

void Referee::read_index(const Arg& word) {
  if (word.kind != Arg::Kind::tile || word.shape() != Shape{1, 1})
    throw RuleError("a number is told of one word of a tile");
  require_known(word, "a decision");
}

void Referee::finish() const {
  if (!in_order_) throw RuleError("a tile was evicted before one above it, or under another shape");
  if (!tiles_.empty()) throw RuleError("fast memory is not empty at the end");
  for (const auto& [key, m] : slow_)
    for (std::size_t w = 0; m.must_be_written && w < m.known.size(); ++w)
      if (!m.known[w])
        throw RuleError(fmt::format("{} of instance {}: word ({}, {}) was never written", name_of(key.first),
                                    key.second, static_cast<index_t>(w) / m.shape.cols,
                                    static_cast<index_t>(w) % m.shape.cols));
}

}  // namespace redblue::machine
