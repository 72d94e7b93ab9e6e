#include "redblue/levels/counted.hpp"

namespace redblue::levels {
namespace {

/// Where a call lies, as far as it changes what moves: nothing where the mask hides no pair of it.
std::vector<index_t> place_key(const Place* place, Shape pairs) {
  if (place == nullptr || place->sees_all(pairs)) return {};
  const Mask& mask = place->mask;
  if (mask.is_listed())
    return {place->row, place->col, static_cast<index_t>(reinterpret_cast<std::uintptr_t>(mask.list()))};
  const Mask own = mask.from(place->row, place->col);
  return {own.lo, own.hi, own.prefix, own.group, place->row % own.group};
}

}  // namespace

InnerCounts::InnerCounts(std::vector<Inner> levels)
    : levels_(std::move(levels)), words_(levels_.size()), sizes_(levels_.front(), levels_.size() == 1) {
  if (levels_.size() > 1) below_ = std::make_unique<InnerCounts>(std::vector(levels_.begin() + 1, levels_.end()));
}

void InnerCounts::begin() {
  words_.assign(levels_.size(), {});
  for (auto& [key, known] : known_) known.times = 0;
}

void InnerCounts::add(const kernel::AnyKernel& k, std::span<const Arg> args) {
  Known& known = of(k, args);
  known.times += 1;
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] += known.words[i];
}

InnerCounts::Known& InnerCounts::of(const kernel::AnyKernel& k, std::span<const Arg> args) {
  std::vector<Shape> shapes;
  for (const Arg& a : args) shapes.push_back(a.shape());
  const Division division(k, shapes);
  Key key{CallKey(k, division, shapes), {}, place_key(k.place(), {division.extent('i'), division.extent('j')})};
  for (const Arg& a : args) key.arrays.push_back(static_cast<index_t>(a.block.array));
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  return known_.emplace(std::move(key), counted(k, args, division, shapes)).first->second;
}

InnerCounts::Known InnerCounts::counted(const kernel::AnyKernel& k, std::span<const Arg> args, const Division& division,
                                        std::span<const Shape> shapes) {
  std::vector<Block> blocks;
  for (const Arg& a : args) blocks.push_back({.array = a.block.array, .shape = a.shape()});
  const Call call{k, division, blocks, sizes_.of(k, division, shapes), below_ == nullptr};
  machine::Counting counting;
  Known known{.words = {}, .sizes = call.sizes, .below = {}, .times = 0};
  if (below_ == nullptr) {
    carry_out(counting, call);
  } else {
    below_->begin();
    Nested nested(counting, *below_);
    carry_out(nested, call);
    known.words = below_->words();
    known.below = below_->calls();
  }
  known.words.insert(known.words.begin(), InnerWords{counting.io(), counting.peak()});
  return known;
}

std::vector<Calls> InnerCounts::calls() const {
  std::map<std::pair<std::size_t, CallKey>, Calls> all;
  const auto add = [&](const Calls& c, std::size_t level, Words times) {
    const auto [place, is_new] = all.try_emplace({level, c.call}, c);
    Calls& sum = place->second;
    if (is_new) sum.level = level, sum.times = sum.words = 0;
    sum.times += times * c.times;
    sum.words += times * c.words;
  };
  for (const auto& [key, known] : known_) {
    if (known.times == 0) continue;
    add({0, key.call, known.sizes, 1, known.words.front().io.total()}, 0, known.times);
    for (const Calls& c : known.below) add(c, c.level + 1, known.times);
  }
  std::vector<Calls> list;
  list.reserve(all.size());
  for (auto& [key, calls] : all) list.push_back(std::move(calls));
  return list;
}

}  // namespace redblue::levels
