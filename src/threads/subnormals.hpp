#pragma once
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace redblue::threads {

/// While one lives, this thread writes 0 in place of results below the smallest normal number, or it does not. Some
/// processors take 100 times as long for such a result, and for every one that it is added to: under ALiBi the keys far
/// away have such weights. Numbers that are read are taken as they are. Processors other than x86 keep what is set.
class FlushSubnormals {
 public:
#if defined(__SSE__)
  explicit FlushSubnormals(bool flush) : before_(_mm_getcsr()) {
    _mm_setcsr(flush ? before_ | kFlushToZero : before_ & ~kFlushToZero);
  }
  ~FlushSubnormals() { _mm_setcsr((_mm_getcsr() & ~kFlushToZero) | (before_ & kFlushToZero)); }

 private:
  static constexpr unsigned kFlushToZero = _MM_FLUSH_ZERO_ON;
  unsigned before_;
#else
  explicit FlushSubnormals(bool) {}
#endif

 public:
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;
};

}  // namespace redblue::threads
