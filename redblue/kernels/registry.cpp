#include "redblue/kernels/registry.hpp"

namespace redblue::kernel {

std::optional<PlainKernel> make_plain(std::string_view name, std::span<const double> values) {
  for (const std::span<const Kind> list : built_in_kinds())
    for (const Kind& kind : list)
      if (kind.name == name && kind.make != nullptr) {
        std::shared_ptr<void> made = kind.make(values);
        if (made == nullptr) return std::nullopt;
        const bool first = kind.first(made.get());
        return PlainKernel(kind, std::move(made), first);
      }
  return std::nullopt;
}

}  // namespace redblue::kernel
