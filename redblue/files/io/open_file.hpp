#pragma once
#include <string>

#include "redblue/language/types.hpp"

namespace redblue::file {

namespace io {

/// What direct requests are multiples of: offsets, sizes and addresses. A page of the page cache is as large, so that
/// no page is written both directly and through the cache.
inline constexpr index_t kPage = 4096;
constexpr index_t up_to_page(index_t x) { return (x + kPage - 1) / kPage * kPage; }
constexpr index_t down_to_page(index_t x) { return x / kPage * kPage; }

/// Do requests pass by the page cache (O_DIRECT)? bypassed_if_possible: where the file system and its alignment allow
/// it; `direct()` says whether they do.
enum class PageCache : std::uint8_t { bypassed_if_possible, used };

/// A file that requests read and write anywhere (engine.hpp).
class OpenFile {
 public:
  /// Opens a file for reading. Throws IoError where it is missing, unreadable, or no regular file.
  explicit OpenFile(std::string path, PageCache cache = PageCache::bypassed_if_possible);
  /// A file of this size without a name in `directory`, whose room is taken on the disk. It goes when this does, or the
  /// process. Throws IoError.
  static OpenFile temporary(const std::string& directory, index_t bytes,
                            PageCache cache = PageCache::bypassed_if_possible);
  /// A file that is made where it is missing, gets this size, its room taken on the disk, and is read and written in
  /// place. What it holds already stays. Throws IoError.
  static OpenFile in_place(std::string path, index_t bytes, PageCache cache = PageCache::bypassed_if_possible);
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  OpenFile& operator=(OpenFile&&) = delete;

  const std::string& path() const { return path_; }
  index_t size() const { return size_; }  ///< in bytes, when it was opened
  bool writable() const { return writable_; }
  bool direct() const { return direct_ >= 0; }
  /// The descriptor of requests through the page cache, and of direct ones; -1 where there are none.
  int cached_descriptor() const { return cached_; }
  int direct_descriptor() const { return direct_; }

 private:
  OpenFile() = default;
  /// Opens the file of `cached_` a second time.
  void open_direct(PageCache cache);

  std::string path_;
  index_t size_ = 0;
  bool writable_ = false;
  int cached_ = -1;
  int direct_ = -1;
};

}  // namespace io
}  // namespace redblue::file
