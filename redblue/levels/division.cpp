#include "redblue/levels/division.hpp"

#include <fmt/format.h>

#include "redblue/language/error.hpp"

namespace redblue::levels {

kernel::Axes axes_of_call(const kernel::AnyKernel& k, std::span<const Shape> shapes) {
  const std::optional<kernel::Axes> axes = k.axes(shapes);
  if (!axes)
    throw Unsupported(
        fmt::format("kernel {} does not say how it divides, so no level below can carry it out: choose a "
                    "schedule without it, or a plan for one level",
                    k.name()));
  return *axes;
}

PerLetter extents_of(const kernel::Axes& axes, std::span<const Shape> shapes) {
  PerLetter extent;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const kernel::Axes::Of& of = axes.of[i];
    if (of.rows != '.') extent[of.rows] = std::max(extent[of.rows], shapes[i].rows);
    if (of.cols != '.') extent[of.cols] = std::max(extent[of.cols], shapes[i].cols);
  }
  return extent;
}

Division::Division(const kernel::AnyKernel& k, std::span<const Shape> shapes)
    : axes_(axes_of_call(k, shapes)), extent_(extents_of(axes_, shapes)) {
  std::array<Arg, kernel::Axes::kMost> args;
  std::array<int, kernel::Axes::kMost> readers{};
  for (std::size_t i = 0; i < shapes.size(); ++i)
    args[i] = {Arg::Kind::stream, static_cast<index_t>(i), {.shape = shapes[i]}};
  k.parts(
      [&](const kernel::AnyKernel&, std::span<const Arg> of_part) {
        for (const Arg& a : of_part)
          if (a.shape().words() > 0) ++readers[static_cast<std::size_t>(a.depth)];
      },
      std::span<const Arg>(args.data(), shapes.size()));
  bool writes_pairs = k.first();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    passes_[i] = has(i, streams()) && kernel::access_of(k, i) == kernel::Access::read && readers[i] <= 1;
    const bool pairs = has(i, 'i') && has(i, 'j') && shapes[i].words() > 0;
    if (pairs && !is_scratch(i) && k.access()[i] != kernel::Access::read) writes_pairs = true;
  }
  if (k.place() != nullptr && !writes_pairs && streams() != '.') place_ = k.place();
}

index_t Division::parts(const PerLetter& sizes) const {
  index_t n = 1;
  for (const char letter : PerLetter::letters)
    if (letter != streams() && extent(letter) > 0) n *= ceil_div(extent(letter), sizes[letter]);
  return n;
}

Ranges Division::part(const PerLetter& sizes, index_t b) const {
  Ranges at;
  for (const char letter : PerLetter::letters) {
    const index_t all = extent(letter);
    at[letter] = {0, all};
    if (letter == streams() || all == 0) continue;
    const index_t n = ceil_div(all, sizes[letter]), first = b % n * sizes[letter];
    at[letter] = {first, std::min(all, first + sizes[letter])};
    b /= n;
  }
  return at;
}

Range Division::streamed(const Ranges& part) const {
  if (place_ == nullptr) return part[streams()];
  return streams() == 'j' ? place_->cols_of(part['i'], extent('j')) : place_->rows_of(part['j'], extent('i'));
}

}  // namespace redblue::levels
