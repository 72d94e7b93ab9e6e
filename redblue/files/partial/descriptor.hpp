#pragma once
#include <cstddef>
#include <span>
#include <string>

#include "redblue/language/types.hpp"

namespace redblue::file::partial {

/// A file of the directory of a partial run, open for reading and writing. All of it throws IoError.
class Descriptor {
 public:
  /// Opens the file, and makes it where it is missing.
  explicit Descriptor(std::string path);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  const std::string& path() const { return path_; }
  int number() const { return fd_; }
  index_t size() const;
  void cut(index_t bytes) const;
  void make_durable() const;
  /// Takes the lock of the file, which ends with the process. Returns false where another process has it; where the
  /// file system has no locks, everybody gets it.
  bool lock() const;

 private:
  std::string path_;
  int fd_;
};

/// Reads as many bytes as there are, at most those of `to`, and returns how many.
index_t read_at(int fd, const std::string& path, index_t offset, std::span<std::byte> to);
void write_at(int fd, const std::string& path, index_t offset, std::span<const std::byte> bytes);
void make_durable(int fd, const std::string& path);
/// Writes from the begin of the file on, and leaves few of the bytes in the page cache.
void write_durably(int fd, const std::string& path, std::span<const std::byte> bytes);
/// Gives the pages of the page cache back, which are on the disk.
void give_back_pages(int fd, index_t offset, index_t bytes);
/// Makes the names in a directory durable.
void make_names_durable(const std::string& directory);

}  // namespace redblue::file::partial
