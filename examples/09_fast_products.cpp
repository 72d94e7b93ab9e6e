// Attention whose products are those of Strassen: examples/strassen.hpp has its text. It is held to redblue's claims,
// and counted on a problem where it moves fewer words than any schedule of class PA can (docs/experiments.md). With
// sizes, 09_fast_products N D M..., it prints the words of its best plan for each M as JSON.
#include <charconv>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "redblue/attention.hpp"
#include "redblue/claims.hpp"
#include "strassen.hpp"

using namespace redblue;

namespace {

plan::Plan plan_of(const plan::Registry& registry, index_t n, index_t d, index_t M, std::string_view schedule) {
  const Problem problem{.n_q = n, .n_k = n, .d = d, .d_v = d};
  return plan::make_plan(problem, {.M = M, .schedule = std::string(schedule), .registry = &registry});
}

void print_json(const plan::Registry& registry, index_t n, index_t d, std::span<const index_t> sizes) {
  const char* separator = "[";
  for (const index_t M : sizes) {
    const plan::Plan plan = plan_of(registry, n, d, M, "strassen");
    std::printf("%s{\"M\": %td, \"words\": %s, \"footprint\": %s, \"tiling\": \"%s\"}", separator, M,
                plan.row().io.total().str().c_str(), plan.row().footprint.str().c_str(),
                plan::sizes_text(plan.row().tiling).c_str());
    separator = ",\n ";
  }
  std::printf("]\n");
}

}  // namespace

int main(int argc, char** argv) try {
  plan::Registry registry = plan::Registry::built_in();
  registry.add(describe<schedule::StrassenForward>());
  if (argc > 1) {
    std::vector<index_t> sizes;
    for (const std::string_view text : std::span(argv + 1, argv + argc)) {
      index_t size = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
      if (error == std::errc{} && end == text.data() + text.size() && size > 0) sizes.push_back(size);
    }
    if (std::ssize(sizes) != argc - 1 || sizes.size() < 3)
      throw InvalidProblem("give N D M...: whole numbers from 1 on, at least one M");
    print_json(registry, sizes[0], sizes[1], std::span(sizes).subspan(2));
    return 0;
  }
  claims::check(*registry.find(Operation::forward, "strassen"), 20);

  const index_t n = 1280, d = 320, M = 64;
  const plan::Plan fast = plan_of(registry, n, d, M, "strassen"), plain = plan_of(registry, n, d, M, "");
  const Measured counted = count(fast);
  std::printf("n = %td, d = %td, M = %td: %s words by Strassen's products, %s by %s; class PA moves %s at least\n", n,
              d, M, counted.io.total().str().c_str(), plain.row().io.total().str().c_str(),
              std::string(plain.row().schedule).c_str(), plain.bound.words.str().c_str());
  return counted.io == fast.row().io && counted.io.total() < plain.bound.words ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
