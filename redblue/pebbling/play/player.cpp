#include "redblue/pebbling/play/player.hpp"

#include <fmt/format.h>

#include <utility>

#include "redblue/language/error.hpp"
#include "redblue/machines/any.hpp"
#include "redblue/problem/sequences.hpp"

namespace redblue::pebbling {
namespace {

/// Statistics of rows have one word each.
bool is_of_statistics(SlowArray a) { return a == SlowArray::D || facts_of(a).as_wide_as == SlowArray::lse; }
/// The places of a block, row by row.
template <class F>
void for_places(const Block& b, const F& f) {
  for (index_t i = 0; i < b.shape.rows; ++i)
    for (index_t j = 0; j < b.shape.cols; ++j) f(i, j);
}

}  // namespace

std::string Player::name_of_word(SlowArray array, index_t row, index_t col) const {
  const Side side = facts_of(array).side;
  if (order_ != nullptr && side == Side::queries)
    row = order_->queries[static_cast<std::size_t>(row / group_)] * group_ + row % group_;
  if (order_ != nullptr && side == Side::keys) row = order_->keys[static_cast<std::size_t>(row)];
  return is_of_statistics(array) ? fmt::format("{}[{}]", redblue::name_of(array), row)
                                 : fmt::format("{}[{},{}]", redblue::name_of(array), row, col);
}

Word& Player::slow(SlowArray array, index_t row, index_t col) { return slow_[index_of(array)][place_of(row, col)]; }

void Player::give(const SlowMatrix& matrix, std::span<const double> words) {
  for_places(matrix.all(), [&](index_t i, index_t j) {
    const double value = words[static_cast<std::size_t>(i * matrix.shape.cols + j)];
    slow(matrix.array, i, j).node = live_.add_input(name_of_word(matrix.array, i, j), value);
  });
}

index_t Player::open(SlowArray array, Shape s, Layout /*layout*/) {
  tiles_.push_back({redblue::name_of(array), s, std::vector<Word>(static_cast<std::size_t>(s.words()))});
  if (rooms_)
    for (Word& w : tiles_.back().words) {
      w = {.node = live_.add({.op = Op::constant, .k = 0}), .is_room = true};
      live_.compute(w.node);
    }
  return static_cast<index_t>(tiles_.size()) - 1;
}
void Player::close(index_t depth, SlowArray /*array*/, Shape /*s*/) noexcept {
  for (const Word& w : tiles_[static_cast<std::size_t>(depth)].words)
    if (w.node != kNoNode && live_.referee().is_red(w.node)) live_.release(w.node);
  tiles_.pop_back();
}
void Player::read(const Arg& a, const Block& b) {
  for_places(b, [&](index_t i, index_t j) {
    Word& word = tile(a).at(a.block.row + i, a.block.col + j);
    if (word.node != kNoNode) live_.release(word.node);
    word = slow(b.array, b.row + i, b.col + j);
    if (word.node == kNoNode)
      throw Error(fmt::format("{} is read and was never written", name_of_word(b.array, b.row + i, b.col + j)));
    live_.read(word.node);
  });
}
void Player::write(const Block& b, const Arg& a) {
  for_places(b, [&](index_t i, index_t j) {
    const Word& word = tile(a).at(a.block.row + i, a.block.col + j);
    if (!word.holds())
      throw Error(
          fmt::format("{} is written from a word that holds nothing", name_of_word(b.array, b.row + i, b.col + j)));
    live_.write(word.node);
    slow(b.array, b.row + i, b.col + j) = word;
  });
}
index_t Player::read_index(Question /*question*/, const Arg& /*word*/, index_t /*worst*/) {
  throw Error("the schedule asks what a number is, so its graph depends on the data; it cannot be played");
}

Operand Player::operand_of(const Arg& a) {
  Operand x{.shape = a.shape(), .name = redblue::name_of(a.block.array)};
  if (x.shape.words() == 0) return x;
  if (a.kind == Arg::Kind::tile) {
    x.tile = &tile(a);
    x.row = a.block.row;
    x.col = a.block.col;
  } else {
    for_places(a.block, [&](index_t i, index_t j) {
      x.passing.push_back(&slow(a.block.array, a.block.row + i, a.block.col + j));
    });
  }
  return x;
}
void Player::call(const kernel::AnyKernel& k, std::span<const Arg> args, bool updates) {
  if (k.name() == "statistics_add" && args[2].kind == Arg::Kind::stream && args[2].shape().cols > 1) {
    // The maximum is one of all scores; as they pass, each is one step of it.
    for (index_t j = 0; j < args[2].shape().cols; ++j) {
      std::vector<Arg> one(args.begin(), args.end());
      one[2].block.col += j;
      one[2].block.shape.cols = 1;
      call(k, one, updates);
    }
    return;
  }
  std::vector<Operand> operands;
  for (const Arg& a : args) operands.push_back(operand_of(a));
  expand(live_, k, operands, updates);
}

void Player::ask_for(const SlowMatrix& matrix) {
  for_places(matrix.all(), [&](index_t i, index_t j) {
    const Node v = slow(matrix.array, i, j).node;
    if (v == kNoNode) throw Error(fmt::format("output {} was never written", name_of_word(matrix.array, i, j)));
    if (!live_.graph().is_input(v)) live_.graph().rename(v, name_of_word(matrix.array, i, j));
    live_.graph().mark_output(v);
  });
}
double Player::value(SlowArray array, index_t row, index_t col) const {
  return live_.value(slow_[index_of(array)].at(place_of(row, col)).node);
}

Play play(const plan::Schedule& schedule, const Sizes& sizes, double scale, const WordsOf& given,
          const plan::Tiling& tiling, const Rules& rules, std::size_t M, bool rooms) {
  if (sizes.score == Score::relu)
    throw Unsupported(
        "score function relu cuts off what is negative: its graph depends on the data, so it cannot be "
        "played; softmax, sigmoid and identity can");
  if (rules.compute == Rules::Compute::partial)
    throw Unsupported("a schedule is played by place or slide; partial computations know no nodes without parents");
  if (rules.processors != 1)
    throw Unsupported(fmt::format("a schedule is played by one processor, not by {}", rules.processors));
  Player player(rules, M, rooms);
  if (sizes.sequences != nullptr) player.name_by(sizes.sequences->order_of(0, 1), sizes.mask.group);
  const auto matrix_of = [&](SlowArray a) { return plan::matrix_of(schedule.operation, sizes, a); };
  const auto give = [&](SlowArray a) {
    if (const SlowMatrix matrix = matrix_of(a); matrix.shape.words() > 0) player.give(matrix, given.at(a));
  };
  for (const SlowArray a : plan::inputs_of(schedule.operation)) give(a);
  const auto outputs = plan::outputs_of(schedule.operation);
  if (sizes.accumulate)
    for (const SlowArray a : outputs) give(a);
  machine::Any any(player);
  schedule.run(any, plan::Instances{sizes, scale, 1}, tiling);

  Play result;
  for (const SlowArray a : outputs) {
    const SlowMatrix matrix = matrix_of(a);
    if (matrix.shape.words() == 0) continue;
    if (a == SlowArray::lse && !sizes.lse_required && !player.has(a, 0, 0)) continue;  // one schedule leaves it out
    player.ask_for(matrix);
    for (index_t i = 0; i < matrix.shape.rows; ++i)
      for (index_t j = 0; j < matrix.shape.cols; ++j) result.outputs[a].push_back(player.value(a, i, j));
  }
  player.live().referee().finish();
  result.rules = rules;
  result.M = M;
  result.cost = player.live().referee().cost();
  result.moves = player.live().moves();
  result.graph = std::move(player.live().graph());
  return result;
}

}  // namespace redblue::pebbling
