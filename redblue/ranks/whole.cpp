#include "redblue/ranks/whole.hpp"

#include <fmt/format.h>

#include <cstring>

#include "redblue/language/error.hpp"
#include "redblue/ranks/channel.hpp"
#include "redblue/ranks/message.hpp"

namespace redblue::ranks {
namespace {

/// f(word of the whole, word of a rank's own rows) for each word that the rank has of an array; `own` is contiguous.
template <class F>
void for_own_words(const Rows& rows, const Tensor& whole, std::byte* own, const F& f) {
  const auto word = static_cast<index_t>(size_of(whole.dtype));
  auto* const data = static_cast<std::byte*>(whole.data);
  for (index_t b = 0; b < whole.shape[0]; ++b)
    for (index_t h = 0; h < whole.shape[1]; ++h)
      for (const Range& range : rows.ranges())
        for (index_t r = range.begin; r < range.end; ++r) {
          std::byte* const row = data + (b * whole.strides[0] + h * whole.strides[1] + r * whole.strides[2]) * word;
          for (index_t c = 0; c < whole.shape[3]; ++c, own += word) f(row + c * whole.strides[3] * word, own);
        }
}

bool is_in_whole(const Tensors& whole, SlowArray a) { return whole[a].shape[0] > 0; }
/// A bias has a row for each query, or one for all.
bool is_spread(const Tensors& whole, SlowArray a) {
  const bool rows_of_bias = is_like_bias(a) && whole[a].shape[2] != 1;
  return is_in_whole(whole, a) && (rows_of_bias || !is_of_modifiers(a));
}
/// The rows that a rank has of an array; all of one that is not spread.
Rows rows_at(const World& world, const Tensors& whole, SlowArray a, int rank) {
  if (!is_spread(whole, a)) return Rows::of({0, whole[a].shape[2]});
  return world.rows_of(is_like_bias(a) ? Side::queries : side_of(a), rank);
}

/// Outputs in the order in which they travel from a rank to rank 0, which has the sums over all ranks itself.
template <class F>
void for_outputs(const World& world, const Tensors& whole, int rank, const F& f) {
  for (const SlowArray a : facts_of(world.problem().op).writes)
    if (is_spread(whole, a) || (rank == 0 && is_in_whole(whole, a))) f(a);
}

}  // namespace

OwnRows::OwnRows(const World& world, int rank, const Tensors& whole) : world_(world), rank_(rank) {
  const OperationFacts& facts = facts_of(world.problem().op);
  const auto add = [&](SlowArray a, bool is_input) {
    if (is_input ? !is_spread(whole, a) : !is_in_whole(whole, a)) {
      if (whole[a].data != nullptr) tensors_[a] = whole[a];
      return;
    }
    const Tensor& all = whole[a];
    const Rows rows = rows_at(world, whole, a, rank);
    std::array<index_t, 4> shape = all.shape;
    shape[2] = rows.count();
    const auto words = static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
    std::vector<std::byte>& memory = memory_.emplace_back(words * size_of(all.dtype) + 1);  // never null
    tensors_[a] = Tensor(memory.data(), all.dtype, shape);
    if (is_input)
      for_own_words(rows, all, memory.data(),
                    [&](const std::byte* of_all, std::byte* own) { std::memcpy(own, of_all, size_of(all.dtype)); });
  };
  for (const SlowArray a : facts.reads) add(a, true);
  for (const SlowArray a : facts.writes) add(a, false);
}

void OwnRows::write_to(const Tensors& whole) const {
  for_outputs(world_, tensors_, rank_, [&](SlowArray a) {
    for_own_words(rows_at(world_, whole, a, rank_), whole[a], static_cast<std::byte*>(tensors_[a].data),
                  [&](std::byte* of_all, const std::byte* own) { std::memcpy(of_all, own, size_of(whole[a].dtype)); });
  });
}

std::vector<std::byte> OwnRows::outputs() const {
  std::vector<std::byte> all;
  for_outputs(world_, tensors_, rank_, [&](SlowArray a) {
    const Tensor& t = tensors_[a];
    const auto* data = static_cast<const std::byte*>(t.data);
    all.insert(all.end(), data, data + t.shape[0] * t.strides[0] * static_cast<index_t>(size_of(t.dtype)));
  });
  return all;
}

void collect(const World& world, Transport& transport, const OwnRows& own, const Tensors& whole,
             std::chrono::milliseconds patience) {
  const auto wait = [&](Message& message, int rank) {
    if (!message.wait(patience))
      throw RankError(fmt::format("rank {}: the outputs of rank {} are not collected after {} ms", transport.rank(),
                                  rank, patience.count()));
  };
  if (transport.rank() != 0) {
    Message message(own.outputs());
    message.send(transport, 0, kAgreement);
    return wait(message, transport.rank());
  }
  own.write_to(whole);
  for (int r = 1; r < world.ranks(); ++r) {
    std::size_t size = 0;
    for_outputs(world, whole, r, [&](SlowArray a) {
      const Tensor& t = whole[a];
      size += static_cast<std::size_t>(t.shape[0] * t.shape[1] * rows_at(world, whole, a, r).count() * t.shape[3]) *
              size_of(t.dtype);
    });
    Message message{std::vector<std::byte>(size)};
    message.receive(transport, r, kAgreement);
    wait(message, r);
    std::byte* at = message.bytes().data();
    for_outputs(world, whole, r, [&](SlowArray a) {
      for_own_words(rows_at(world, whole, a, r), whole[a], at, [&](std::byte* of_all, const std::byte* word) {
        std::memcpy(of_all, word, size_of(whole[a].dtype));
        at += size_of(whole[a].dtype);
      });
    });
  }
}

}  // namespace redblue::ranks
