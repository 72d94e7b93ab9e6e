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

/// The schedule text S, which runs once for each instance: the outermost loop.
template <class S>
class PreparedText final : public plan::Prepared {
 public:
  PreparedText(const plan::Instances& x, const plan::Tiling& t)
      : tiling_(tiling_of<Text>(t)), loops_(x.sizes, tiling_), scale_(x.scale), sharing_(x.sizes.modifiers, x.count) {}
  void run(machine::Any& m) const override {
    m.each(sharing_.items, [&](auto& w, index_t item) {
      for (index_t k = 0; k < sharing_.each; ++k) Text::run(w, loops_, scale_, sharing_.instance(item, k), tiling_);
    });
  }

 private:
  using Text = schedule::Masked<S>;
  typename Text::Tiling tiling_;
  typename Text::Loops loops_;
  double scale_;
  schedule::Sharing sharing_;
};

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

template <class Text>
constexpr auto least_io() -> decltype(plan::Schedule::least_io) {
  if constexpr (requires { &Text::least_io; })
    return [](const Sizes& x) -> Io { return Text::least_io(x); };
  else
    return nullptr;
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
              if (m.shape.rows > 0) list.push_back(laid_out(taken, m));
            return list;
          },
      .prepare = [](const plan::Instances& x, const Tiling& t) -> std::unique_ptr<const plan::Prepared> {
        return std::make_unique<detail::PreparedText<Text>>(x, t);
      },
      .decided = detail::decided_costs<Text>(),
      .least_io = detail::least_io<Text>(),
  };
}

}  // namespace redblue
