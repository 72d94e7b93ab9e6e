#include "redblue/levels/counted.hpp"

namespace redblue::levels {
namespace {

/// Where a call lies, as far as it changes what moves: nothing where the mask hides no pair of it.
std::vector<index_t> place_key(const Place* place, Shape pairs) {
  if (place == nullptr || place->mask.full() || place->sees_all(pairs)) return {};
  const Mask& mask = place->mask;
  if (mask.is_listed())
    return {place->row, place->col, static_cast<index_t>(reinterpret_cast<std::uintptr_t>(mask.list()))};
  const Mask own = mask.from(place->row, place->col);
  return {own.lo, own.hi, own.prefix, own.group, place->row % own.group};
}

/// Calls visit(ranges, times) for one of all parts of a call that move alike.
template <class Visit>
void for_unlike_parts(const Call& call, const Visit& visit) {
  struct Alike {
    Ranges one;
    Words times;
  };
  const Division& d = call.division;
  std::map<std::vector<index_t>, Alike> all;
  for (index_t b = 0, n = d.parts(call.sizes); b < n; ++b) {
    const Ranges at = d.part(call.sizes, b);
    if (d.streams() != '.' && d.streamed(at).size() == 0) continue;
    std::vector<index_t> key;
    if (const Place* const whole = call.k.place(); whole != nullptr) {
      const Place place = whole->at(at['i'].begin, at['j'].begin);
      key = place_key(&place, {at['i'].size(), at['j'].size()});
    }
    for (const Range& range : at.of) key.push_back(range.size());
    all.try_emplace(std::move(key), Alike{at, 0}).first->second.times += 1;
  }
  for (const auto& [key, alike] : all) visit(alike.one, alike.times);
}

}  // namespace

void CallKinds::add(const kernel::AnyKernel& k, std::span<const Arg> args) {
  std::vector<Shape> shapes;
  shapes.reserve(args.size());
  for (const Arg& a : args) shapes.push_back(a.shape());
  const kernel::Axes axes = axes_of_call(k, shapes);
  const PerLetter extent = extents_of(axes, shapes);
  Key key{place_key(k.place(), {extent['i'], extent['j']}), {}, CallKey(k, axes, shapes)};
  key.arrays.reserve(args.size());
  for (const Arg& a : args) key.arrays.push_back(static_cast<index_t>(a.block.array));
  const auto [place, is_new] = all_.try_emplace(std::move(key));
  Kind& kind = place->second;
  kind.times += 1;
  if (!is_new) return;
  kind.kernel = kernel::PlainKernel(k);
  for (const Arg& a : args) kind.args.push_back({.array = a.block.array, .shape = a.shape()});
}

void CallKinds::add(const CallKinds& others, Words times) {
  for (const auto& [key, kind] : others.all_) {
    const auto [place, is_new] = all_.try_emplace(key, kind);
    if (is_new) place->second.times = 0;
    place->second.times += times * kind.times;
  }
}

InnerCounts::InnerCounts(std::vector<Inner> levels)
    : levels_(std::move(levels)), sizes_(levels_.front(), levels_.size() == 1) {
  if (levels_.size() > 1) below_ = std::make_unique<InnerCounts>(std::vector(levels_.begin() + 1, levels_.end()));
}

const InnerCounts::Known& InnerCounts::of(const CallKinds::Key& key, const CallKinds::Kind& kind) {
  const auto found = known_.find(key);
  return found != known_.end() ? found->second : known_.emplace(key, counted(kind)).first->second;
}

InnerCounts::Known InnerCounts::counted(const CallKinds::Kind& kind) {
  const kernel::AnyKernel k = kind.kernel.any();
  std::vector<Shape> shapes;
  shapes.reserve(kind.args.size());
  for (const Block& b : kind.args) shapes.push_back(b.shape);
  const Division division(k, shapes);
  const Call call{k, division, kind.args, sizes_.of(k, division, shapes), below_ == nullptr};
  InnerWords here;
  CallKinds below;
  for_unlike_parts(call, [&](const Ranges& part, Words times) {
    machine::Counting counting;
    if (below_ == nullptr) {
      CountingAlike alike(counting);
      carry_out_part(alike, call, part);
      return here.add(times, {counting.io() + alike.more(), counting.peak()});
    }
    CallKinds calls;
    CallKinds& into = times == 1 ? below : calls;
    Nested nested(counting, into);
    carry_out_part(nested, call, part);
    here.add(times, {counting.io(), counting.peak()});
    below.add(calls, times);
  });
  Known known{.words = {here}, .sizes = call.sizes, .below = std::move(below)};
  if (below_ != nullptr)
    for (const InnerWords& w : below_->words(known.below)) known.words.push_back(w);
  return known;
}

std::vector<InnerWords> InnerCounts::words(const CallKinds& kinds) {
  std::vector<InnerWords> words(levels_.size());
  for (const auto& [key, kind] : kinds.all()) {
    const Known& known = of(key, kind);
    for (std::size_t i = 0; i < words.size(); ++i) words[i].add(kind.times, known.words[i]);
  }
  return words;
}

std::vector<Calls> InnerCounts::calls(const CallKinds& kinds) {
  std::map<CallKey, Calls> all;
  CallKinds below;
  for (const auto& [key, kind] : kinds.all()) {
    const Known& known = of(key, kind);
    const auto place = all.try_emplace(key.call, Calls{0, key.call, known.sizes, 0, 0}).first;
    place->second.times += kind.times;
    place->second.words += kind.times * known.words.front().io.total();
    below.add(known.below, kind.times);
  }
  std::vector<Calls> list;
  list.reserve(all.size());
  for (auto& [key, calls] : all) list.push_back(std::move(calls));
  if (below_ == nullptr) return list;
  for (Calls& c : below_->calls(below)) {
    ++c.level;
    list.push_back(std::move(c));
  }
  return list;
}

}  // namespace redblue::levels
