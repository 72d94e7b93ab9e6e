#pragma once
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace redblue::threads {

/// While one lives, this thread sets results below the smallest normal number to 0, or keeps them. Some processors take
/// 100 times as long to form such a result, and under ALiBi keys far away have them (docs/numerics.md). Numbers that
/// are read are taken as they are. On processors other than x86 it does nothing.
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
