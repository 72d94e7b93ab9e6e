#include "redblue/isa.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "redblue/core/error.hpp"

namespace redblue {
namespace {

/// Sets REDBLUE_ISA, or unsets it, until the end of the test.
class Isas : public ::testing::Test {
 protected:
  Isas() {
    if (const char* before = std::getenv("REDBLUE_ISA")) before_ = before;
  }
  ~Isas() override { before_ ? set(before_->c_str()) : unset(); }
  static void set(const char* value) { setenv("REDBLUE_ISA", value, 1); }
  static void unset() { unsetenv("REDBLUE_ISA"); }

 private:
  std::optional<std::string> before_;
};

template <class E>
std::string message_of(Isa (*f)()) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "no such exception";
}

TEST_F(Isas, NamesRoundTrip) {
  for (Isa isa : kIsas) EXPECT_EQ(isa_from_name(name_of(isa)), isa);
  EXPECT_EQ(isa_from_name("AVX2"), std::nullopt);
  EXPECT_EQ(isa_from_name(""), std::nullopt);
}

TEST_F(Isas, AvailableOnesAreAPrefix) {
  EXPECT_TRUE(is_available(Isa::portable));
  for (std::size_t i = 1; i < std::size(kIsas); ++i)
    EXPECT_TRUE(is_available(kIsas[i - 1]) || !is_available(kIsas[i])) << name_of(kIsas[i]);
}

TEST_F(Isas, BestIsTheLargestAvailable) {
  for (const bool empty : {false, true}) {
    empty ? set("") : unset();
    const Isa best = best_isa();
    for (Isa isa : kIsas) EXPECT_EQ(is_available(isa), isa <= best) << name_of(isa);
  }
}

TEST_F(Isas, EnvironmentDecides) {
  for (Isa isa : kIsas) {
    set(std::string(name_of(isa)).c_str());
    if (is_available(isa))
      EXPECT_EQ(best_isa(), isa);
    else
      EXPECT_THAT(message_of<Unsupported>(best_isa),
                  ::testing::AllOf(::testing::HasSubstr(name_of(isa)), ::testing::HasSubstr("it has portable")));
  }
}

TEST_F(Isas, UnknownNameIsRefusedWithWhatThereIs) {
  set("sse9");
  EXPECT_EQ(message_of<InvalidProblem>(best_isa),
            "REDBLUE_ISA = 'sse9' is no instruction set: choose from portable, avx2, avx512, avx512_bf16");
}

}  // namespace
}  // namespace redblue
