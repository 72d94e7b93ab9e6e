#include "redblue/hardware/isa.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "redblue/language/error.hpp"

namespace redblue {
namespace {

template <class E>
std::string message_of(std::string_view name) {
  try {
    isa_asked_for(name);
  } catch (const E& e) {
    return e.what();
  }
  return "no such exception";
}

TEST(Isas, NamesRoundTrip) {
  for (Isa isa : kIsas) EXPECT_EQ(isa_from_name(name_of(isa)), isa);
  EXPECT_EQ(isa_from_name("AVX2"), std::nullopt);
  EXPECT_EQ(isa_from_name(""), std::nullopt);
}

TEST(Isas, AvailableOnesAreAPrefix) {
  EXPECT_TRUE(is_available(Isa::portable));
  for (std::size_t i = 1; i < std::size(kIsas); ++i)
    EXPECT_TRUE(is_available(kIsas[i - 1]) || !is_available(kIsas[i])) << name_of(kIsas[i]);
}

TEST(Isas, WithoutANameItIsTheLargestAvailable) {
  const Isa best = isa_asked_for("");
  for (Isa isa : kIsas) EXPECT_EQ(is_available(isa), isa <= best) << name_of(isa);
}

TEST(Isas, ANameDecides) {
  for (Isa isa : kIsas) {
    if (is_available(isa))
      EXPECT_EQ(isa_asked_for(name_of(isa)), isa);
    else
      EXPECT_THAT(message_of<Unsupported>(name_of(isa)),
                  ::testing::AllOf(::testing::HasSubstr(name_of(isa)), ::testing::HasSubstr("it has portable")));
  }
}

TEST(Isas, UnknownNameIsRefusedWithWhatThereIs) {
  EXPECT_EQ(message_of<InvalidProblem>("sse9"),
            "REDBLUE_ISA = 'sse9' is no instruction set: choose from portable, avx2, avx512, avx512_bf16, amx_bf16");
}

/// Each child is a process of its own, which starts this program again: what this one has read stays out of it.
class IsasOfAProcess : public ::testing::Test {
 protected:
  IsasOfAProcess() {
    if (const char* before = std::getenv("REDBLUE_ISA")) before_ = before;
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  }
  ~IsasOfAProcess() override { before_ ? set(*before_) : void(unsetenv("REDBLUE_ISA")); }
  static void set(std::string_view value) { setenv("REDBLUE_ISA", std::string(value).c_str(), 1); }

 private:
  std::optional<std::string> before_;
};

TEST_F(IsasOfAProcess, EnvironmentDecides) {
  for (Isa isa : kIsas) {
    if (!is_available(isa)) continue;
    set(name_of(isa));
    EXPECT_EXIT(std::exit(best_isa() == isa ? 0 : 1), ::testing::ExitedWithCode(0), "") << name_of(isa);
  }
  set("");
  EXPECT_EXIT(std::exit(best_isa() == isa_asked_for("") ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST_F(IsasOfAProcess, TheVariableIsReadOnce) {
  const auto read_change_read = [] {
    const Isa before = best_isa();
    set(before == Isa::portable ? "" : "portable");
    return before == best_isa();
  };
  set("portable");
  EXPECT_EXIT(std::exit(read_change_read() ? 0 : 1), ::testing::ExitedWithCode(0), "");
  set("");
  EXPECT_EXIT(std::exit(read_change_read() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

TEST_F(IsasOfAProcess, AWrongNameStaysWrong) {
  const auto refused = [] {
    try {
      best_isa();
    } catch (const InvalidProblem&) {
      return true;
    }
    return false;
  };
  const auto refused_twice = [&] {
    const bool before = refused();
    set("");
    return before && refused();
  };
  set("sse9");
  EXPECT_EXIT(std::exit(refused_twice() ? 0 : 1), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace redblue
