#pragma once
#include "redblue/machines/any.hpp"
#include "redblue/schedules/parts/cores.hpp"
#include "redblue/schedules/parts/workspace.hpp"
#include "redblue/schedules/schedule.hpp"

namespace redblue {

namespace detail {

template <class S>
typename S::Tiling tiling_of(const plan::Tiling& t) {
  return schedule::tiling_from<typename S::Tiling>(t);
}

/// The schedule text S on a machine, once for each instance: the outermost loop.
template <class S, class M>
void run_instances(M& m, const plan::Instances& x, const plan::Tiling& t) {
  const auto tiling = tiling_of<schedule::Masked<S>>(t);
  const auto run = [&](auto& w, index_t instance) {
    schedule::Masked<S>::run(w, typename S::Operands(x.sizes, x.scale, instance), tiling);
  };
  const schedule::Sharing sharing(x.sizes.modifiers, x.count);
  m.each(sharing.items, [&](auto& w, index_t item) {
    for (index_t k = 0; k < sharing.each; ++k) run(w, sharing.instance(item, k));
  });
}

template <class Text>
constexpr auto decided_costs() -> decltype(plan::Schedule::decided) {
  if constexpr (requires { &Text::decided; }) {
    using S = schedule::Masked<Text>;
    return [](const Sizes& x, const plan::Tiling& t, const Decisions& decisions) -> schedule::Costs {
      return S::decided(x, tiling_of<S>(t), decisions);
    };
  } else {
    return nullptr;
  }
}

}  // namespace detail

/// A schedule text as a value, for a plan::Registry. docs/adding-an-algorithm.md says what it must have. The value
/// runs on every machine through machine::Any; docs/machines.md says what that costs.
template <class Text>
plan::Schedule describe() {
  using S = schedule::Masked<Text>;
  using plan::Tiling;
  using schedule::tile_sizes_of;
  return {
      .name = S::name,
      .label = S::label,
      .idea = S::idea,
      .operation = S::Operands::operation,
      .traits = S::traits,
      .tile_sizes = schedule::tile_size_ranges<typename S::Tiling>(),
      .workspace_arrays = {S::workspace.begin(), S::workspace.end()},
      .unsupported = [](const Sizes& x) -> std::optional<std::string_view> { return S::unsupported(x); },
      .restricted_bound = [](const Sizes& x) -> std::string_view { return S::restricted_bound(x); },
      .caveat = [](const Sizes& x, const Tiling& t) -> std::string_view {
        return S::caveat(x, detail::tiling_of<S>(t));
      },
      .allows = [](const Sizes& x, const Tiling& t) -> bool { return S::allows(x, detail::tiling_of<S>(t)); },
      .smallest = [](const Sizes& x, const schedule::Multiples& m) { return tile_sizes_of(S::smallest(x, m)); },
      .choose = [](const Sizes& x, const schedule::Limits& limits) -> std::optional<Tiling> {
        const auto t = S::choose_tiling(x, limits);
        if (!t) return std::nullopt;
        return tile_sizes_of(*t);
      },
      .footprint = [](const Sizes& x, const Tiling& t) -> Words { return S::footprint(x, detail::tiling_of<S>(t)); },
      .prefetch = [](const Sizes& x, const Tiling& t) -> Words { return S::prefetch(x, detail::tiling_of<S>(t)); },
      .io = [](const Sizes& x, const Tiling& t) -> Io { return S::io(x, detail::tiling_of<S>(t)); },
      .macs = [](const Sizes& x, const Tiling& t) -> Words { return S::macs(x, detail::tiling_of<S>(t)); },
      .index = [](const Sizes& x, const Tiling& t) -> IndexWords { return S::index(x, detail::tiling_of<S>(t)); },
      .workspace =
          [](const Sizes& x, const Tiling& t) {
            const auto tiling = detail::tiling_of<S>(t);
            const Sizes taken = S::taken(x, tiling);
            std::vector<Workspace> list;
            list.reserve(Text::workspace.size());
            for (const SlowMatrix& m : schedule::workspace_of<Text>(typename S::Operands(taken, 1), tiling.all))
              list.push_back(laid_out(taken, m));
            return list;
          },
      .run = detail::run_instances<Text, machine::Any>,
      .decided = detail::decided_costs<Text>(),
  };
}

}  // namespace redblue
