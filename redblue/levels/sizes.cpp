#include "redblue/levels/sizes.hpp"

#include "redblue/language/error.hpp"

namespace redblue::levels {
namespace {

/// An argument where ranges have these sizes.
Shape part_of(const Division& d, std::size_t i, Shape s, const PerLetter& sizes) {
  Ranges at;
  for (const char letter : PerLetter::letters) at[letter] = {0, std::min(sizes[letter], d.extent(letter))};
  return {d.rows(i, s, at).size(), d.cols(i, s, at).size()};
}
/// Letters whose ranges stay, that are longer than nothing.
std::vector<char> kept_letters(const Division& d) {
  std::vector<char> list;
  for (const char letter : PerLetter::letters)
    if (letter != d.streams() && d.extent(letter) > 0) list.push_back(letter);
  return list;
}

/// The largest size of a letter, a multiple of the grain, that fits; 0: none.
template <class Fits>
index_t largest(index_t extent, index_t grain, const Fits& fits) {
  if (fits(extent)) return extent;
  index_t low = 0, high = ceil_div(extent, grain);  // in grains: low fits, high does not
  while (high - low > 1) {
    const index_t middle = low + (high - low) / 2;
    (fits(middle * grain) ? low : high) = middle;
  }
  return low * grain;
}

}  // namespace

Words footprint_of(const kernel::AnyKernel& k, const Division& d, std::span<const Shape> shapes, const PerLetter& sizes,
                   bool last) {
  Words held;
  std::array<Arg, kernel::Axes::kMost> args;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Shape s = part_of(d, i, shapes[i], sizes);
    args[i].block.shape = s;
    if (s.words() == 0 || d.passes(i))
      args[i] = Arg::streaming({.shape = s});
    else if (last || !d.is_scratch(i))
      held += s.words();
  }
  return held + k.most_passing(std::span<const Arg>(args.data(), shapes.size()));
}

Words words_of(const kernel::AnyKernel& k, const Division& d, std::span<const Shape> shapes, const PerLetter& sizes) {
  Words words;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (d.is_scratch(i)) continue;
    Words times = 1;
    for (const char letter : kept_letters(d))
      if (!d.has(i, letter)) times = times * ceil_div(d.extent(letter), sizes[letter]);
    const kernel::Access access = kernel::access_of(k, i);
    words += Words(shapes[i].words()) * times * (access == kernel::Access::update ? 2 : 1);
  }
  return words;
}

namespace {

/// The best of this grain.
std::optional<PerLetter> sizes_of_grain(const kernel::AnyKernel& k, const Division& d, std::span<const Shape> shapes,
                                        const Inner& level, bool last) {
  const auto& [M, grain] = level;
  const std::vector<char> kept = kept_letters(d);
  PerLetter sizes;
  for (const char letter : PerLetter::letters) sizes[letter] = std::max<index_t>(1, d.extent(letter));
  if (const char passing = d.streams(); passing != '.') {
    PerLetter some = sizes;
    some[passing] = std::min(sizes[passing], grain.passing);
    if (footprint_of(k, d, shapes, some, last) < footprint_of(k, d, shapes, sizes, last)) sizes = some;
  }
  const auto fits = [&](const PerLetter& s) { return footprint_of(k, d, shapes, s, last) <= M; };
  std::optional<PerLetter> best;
  Words least;
  const auto consider = [&](const PerLetter& s) {
    const Words words = words_of(k, d, shapes, s);
    if (best && least <= words) return;
    best = s;
    least = words;
  };
  if (kept.empty()) {
    if (fits(sizes)) consider(sizes);
    return best;
  }
  // The last letter whole, then in more and more parts; the first as long as fits beside it. There are two at most.
  const char first = kept.front(), other = kept.back();
  const index_t all = d.extent(other), most = ceil_div(ceil_div(d.extent(first), grain.parts), grain.kept) * grain.kept;
  for (index_t n = 1; n <= all; n = n < 8 ? n + 1 : 2 * n) {
    PerLetter s = sizes;
    if (first != other) s[other] = std::min(all, ceil_div(ceil_div(all, n), grain.kept) * grain.kept);
    s[first] = largest(std::min(most, d.extent(first)), grain.kept, [&](index_t size) {
      PerLetter tried = s;
      tried[first] = size;
      return size == 0 || fits(tried);
    });
    if (s[first] > 0) consider(s);
    if (first == other) break;
  }
  return best;
}

}  // namespace

std::optional<PerLetter> choose_sizes(const kernel::AnyKernel& k, const Division& d, std::span<const Shape> shapes,
                                      const Inner& level, bool last) {
  for (Inner tried = level;; tried.grain.passing /= 2) {
    if (const auto sizes = sizes_of_grain(k, d, shapes, tried, last)) return sizes;
    if (tried.grain.passing > 1) continue;
    if (tried.grain.kept == 1) return std::nullopt;
    tried.grain = {1, 2, tried.grain.parts};
  }
}

CallKey::CallKey(const kernel::AnyKernel& k, const kernel::Axes& axes, std::span<const Shape> sides)
    : kernel(k.name()), first(k.first()), axes(axes) {
  shapes.reserve(2 * sides.size());
  for (const Shape& s : sides) shapes.insert(shapes.end(), {s.rows, s.cols});
}

const PerLetter& ChosenSizes::of(const kernel::AnyKernel& k, const Division& d, std::span<const Shape> shapes) {
  CallKey key(k, d.axes(), shapes);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  const std::optional<PerLetter> sizes = choose_sizes(k, d, shapes, level_, last_);
  if (sizes) return known_.emplace(std::move(key), *sizes).first->second;
  PerLetter least;
  least.of.fill(1);
  redblue::detail::throw_capacity(footprint_of(k, d, shapes, least, last_), level_.M);
}

}  // namespace redblue::levels
