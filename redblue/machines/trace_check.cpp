#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "redblue/language/error.hpp"
#include "redblue/machines/trace.hpp"

namespace redblue::machine {

namespace {

using Kind = Operation::Kind;
using kernel::Access;

constexpr index_t kMostStreams = 16;  // arguments of a kernel, each a word while it passes

bool is_counted(Words words) { return words <= Words(std::numeric_limits<index_t>::max()); }

/// A rectangle that begins at 0 or later and whose end and words can be counted.
std::string fault_of(index_t row, index_t col, Shape s) {
  if (row < 0 || col < 0 || s.rows < 0 || s.cols < 0) return "a size or place is negative";
  if (!is_counted(Words(row) + s.rows) || !is_counted(Words(col) + s.cols) || !is_counted(Words(s.rows) * s.cols))
    return "a size exceeds 63 bits";
  return {};
}

bool is_inside(const Block& b, Shape s) { return b.row + b.shape.rows <= s.rows && b.col + b.shape.cols <= s.cols; }

/// Can the kernel count in 63 bits with arguments of at most these words, rows and columns?
bool can_count(const kernel::AnyKernel& k, Words words, index_t longest) {
  if (!is_counted(Words(2) * words * longest)) return false;  // multiply-adds
  if (const Place* place = k.place(); place != nullptr) {
    const Mask& mask = place->mask;
    const auto size = [](index_t x) { return std::max(Words(x), Words(0) - x); };
    const Words reach = Words(std::max(place->row, place->col)) + longest + size(mask.lo) + size(mask.hi) + 2;
    return is_counted(Words(4) * reach * mask.group);
  }
  return true;
}

std::string fault_of(const kernel::AnyKernel& k, const Operation& op) {
  const auto& args = op.args;
  const bool modifies = op.kind == Kind::modify;
  if (args.size() != k.access().size())
    return fmt::format("{} takes {} arguments and is given {}", k.name(), k.access().size(), args.size());
  if (modifies && !k.kind().updates) return fmt::format("{} is not a kernel for updates", k.name());
  Words words = 0;
  index_t longest = 0;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const bool is_stream = args[i].kind == Arg::Kind::stream;
    if (modifies && i == 0 && !is_stream) return "an update begins with a block of slow memory";
    if (!(modifies && i == 0) && is_stream && k.access()[i] != Access::read)
      return fmt::format("{} writes its argument {}: only an argument that it reads may be streamed", k.name(), i + 1);
    words = std::max(words, Words(args[i].shape().words()));
    longest = std::max({longest, args[i].shape().rows, args[i].shape().cols});
  }
  if (const Place* place = k.place(); place != nullptr)
    if (const Mask& m = place->mask;
        m.group < 1 || m.group >= Mask::kFar || place->row < 0 || place->row >= Mask::kFar || place->col < 0 ||
        place->col >= Mask::kFar || m.prefix < 0 || m.prefix >= Mask::kFar || m.lo >= Mask::kFar || m.hi <= -Mask::kFar)
      return fmt::format(
          "{} has lo = {}, hi = {}, prefix = {}, group = {}, row = {}, col = {}: give a group of 1 or more, "
          "a place and a prefix from 0 on, and edges of which lo may be -inf and hi inf",
          k.name(), m.lo, m.hi, m.prefix, m.group, place->row, place->col);
  if (!k.can_drop()) return fmt::format("{} drops a share of 0 or more and less than 1, at places from 0 on", k.name());
  if (!can_count(k, words, longest)) return "its counts exceed 63 bits";
  return k.may_run(args) ? std::string() : fmt::format("the shapes given to {} do not go together", k.name());
}

/// What came before an operation: the tiles that are there, and counts.
class Before {
 public:
  explicit Before(const std::map<std::pair<SlowArray, index_t>, Shape>* arrays) : arrays_(arrays) {}

  /// What is wrong with the operation at this place; empty if nothing. Goes on behind it.
  std::string fault_of(const Operation& op) {
    if (std::string fault = detail::fault_of(op); !fault.empty()) return fault;
    for (const Arg& a : op.args)
      if (std::string fault = fault_of(a); !fault.empty()) return fault;
    if (op.kind == Kind::open) {
      if (op.depth != depth()) return fmt::format("the next tile is t{}", depth());
      tiles_.push_back(op.shape);
      resident_ += op.shape.words();
    }
    if (op.kind == Kind::close) {
      if (op.depth != depth() - 1) return fmt::format("the topmost of {} tiles leaves first", depth());
      if (op.shape != tiles_.back()) return "the tile has another shape";
      tiles_.pop_back();
      resident_ -= op.shape.words();
    }
    count(op);
    return is_counted(resident_ + kMostStreams) && is_counted(moved_) && is_counted(macs_)
               ? std::string()
               : "the counts up to here exceed 63 bits";
  }
  index_t depth() const { return static_cast<index_t>(tiles_.size()); }

 private:
  std::string fault_of(const Arg& a) const {
    if (a.shape().words() == 0) return {};
    if (a.kind == Arg::Kind::tile) {
      if (a.depth < 0 || a.depth >= depth()) return fmt::format("there is no tile t{}", a.depth);
      const Shape s = tiles_[static_cast<std::size_t>(a.depth)];
      if (!is_inside(a.block, s))
        return fmt::format("an argument reaches outside t{}, which is {}x{}", a.depth, s.rows, s.cols);
      return {};
    }
    if (arrays_ == nullptr) return {};
    const auto found = arrays_->find({a.block.array, a.block.instance});
    if (found == arrays_->end())
      return fmt::format("there is no array {}#{}", name_of(a.block.array), a.block.instance);
    if (is_inside(a.block, found->second)) return {};
    return fmt::format("a block reaches outside {}#{}, which is {}x{}", name_of(a.block.array), a.block.instance,
                       found->second.rows, found->second.cols);
  }
  void count(const Operation& op) {
    for (const Arg& a : op.args)
      if (a.kind == Arg::Kind::stream) moved_ += Words(2) * a.shape().words();  // an update reads and writes
    if (op.kind == Kind::run || op.kind == Kind::modify) macs_ += op.kernel.any().macs(op.args);
  }

  const std::map<std::pair<SlowArray, index_t>, Shape>* arrays_;
  std::vector<Shape> tiles_;
  Words resident_, moved_, macs_;
};

void check(const Trace& trace, const std::map<std::pair<SlowArray, index_t>, Shape>* arrays) {
  Before before(arrays);
  for (std::size_t i = 0; i < trace.operations.size(); ++i)
    if (const std::string fault = before.fault_of(trace.operations[i]); !fault.empty())
      throw InvalidProblem(
          fmt::format("trace operation {}, '{}': {}", i + 1, detail::to_text(trace.operations[i]), fault));
  if (before.depth() > 0)
    throw InvalidProblem(fmt::format("the trace ends with {} tiles that were not closed", before.depth()));
}

}  // namespace

std::string detail::fault_of(const Operation& op) {
  if (op.depth < 0) return "a number is negative";
  if (op.kind == Kind::open || op.kind == Kind::close) return machine::fault_of(0, 0, op.shape);
  for (const Arg& a : op.args) {
    if (std::string fault = machine::fault_of(a.block.row, a.block.col, a.shape()); !fault.empty()) return fault;
    if (a.depth < 0 || a.block.instance < 0) return "a number is negative";
  }
  if (op.kind == Kind::read || op.kind == Kind::write) {
    if (op.args.size() != 2) return "a tile and a block are needed";
    const std::size_t tile = op.kind == Kind::read ? 0 : 1;
    if (op.args[tile].kind != Arg::Kind::tile || op.args[1 - tile].kind != Arg::Kind::stream)
      return op.kind == Kind::read ? "a tile comes first, then the block it is read from"
                                   : "a block comes first, then the tile it is written from";
    if (op.args[0].shape() != op.args[1].shape()) return "tile and block have different shapes";
  }
  if (op.kind == Kind::decide || op.kind == Kind::index) {
    if (op.args.size() != 1 || op.args[0].kind != Arg::Kind::tile || op.args[0].shape() != Shape{1, 1})
      return "one word of a tile is needed";
  }
  if (op.kind == Kind::run || op.kind == Kind::modify) return machine::fault_of(op.kernel.any(), op);
  return {};
}

void check(const Trace& trace) { check(trace, nullptr); }

void check(const Trace& trace, std::span<const SlowMatrix> arrays) {
  std::map<std::pair<SlowArray, index_t>, Shape> shapes;
  for (const SlowMatrix& m : arrays) shapes[{m.array, m.instance}] = m.shape;
  check(trace, &shapes);
}

}  // namespace redblue::machine
