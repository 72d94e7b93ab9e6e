#pragma once
#include <chrono>

namespace redblue::threads {

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Polls done() for about as long as it takes a thread to fall asleep and be woken: for that time polling is cheaper.
/// Returns done().
template <class Done>
bool spin_until(const Done& done) {
  constexpr auto kLong = std::chrono::microseconds(50);
  const auto end = std::chrono::steady_clock::now() + kLong;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

}  // namespace redblue::threads
