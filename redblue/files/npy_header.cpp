#include "redblue/files/npy_header.hpp"

#include <fmt/format.h>

#include <charconv>

#include "redblue/files/text.hpp"
#include "redblue/language/error.hpp"

namespace redblue::file {

namespace {

/// The subset of Python's literals that numpy writes.
class Parser {
 public:
  Parser(std::string_view text, const std::string& path, std::size_t offset)
      : text_(text), path_(path), offset_(offset) {}

  NpyHeader dictionary() {
    NpyHeader header;
    bool descr = false, fortran_order = false, shape = false;
    const auto once = [&](bool& seen, const std::string& key) {
      if (seen) fail(fmt::format("'{}' twice", key));
      seen = true;
    };
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        once(descr, key);
        header.descr = dtype();
      } else if (key == "fortran_order") {
        once(fortran_order, key);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        once(shape, key);
        header.shape = tuple();
      } else {
        fail(fmt::format("the unknown entry '{}'", printable(key, true)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("text after the dictionary");
    if (!descr) fail("no 'descr'");
    if (!fortran_order) fail("no 'fortran_order'");
    if (!shape) fail("no 'shape'");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw IoError(fmt::format("'{}' is not a valid .npy file: its header has {} (at byte {}): {}", path_, what,
                              offset_ + at_, printable(text_, true)),
                  path_, static_cast<index_t>(offset_ + at_));
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("no '{}' where one must be", c));
  }

  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("no string where one must be");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a string without an end");
    std::string s(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return s;
  }

  std::string dtype() {
    if (peek() == '[')
      throw Unsupported(
          fmt::format("'{}' holds records (dtype {}); redblue reads arrays of plain f8, f4, f2, and V2 as bf16", path_,
                      printable(text_.substr(at_), true)));
    return string();
  }

  bool boolean() {
    skip_space();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    fail("neither True nor False for 'fortran_order'");
  }

  index_t dimension() {
    if (peek() == '-') fail("a negative size in 'shape'");
    index_t n = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
    if (error == std::errc::result_out_of_range) fail("a size above 2^63 in 'shape'");
    if (error != std::errc()) fail("something in 'shape' that is not a whole number");
    at_ = static_cast<std::size_t>(end - text_.data());
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote its longs so
    return n;
  }

  std::vector<index_t> tuple() {
    std::vector<index_t> shape;
    expect('(');
    while (!accept(')')) {
      shape.push_back(dimension());
      if (accept(',')) continue;
      expect(')');
      if (shape.size() == 1) fail("a 'shape' that is a number, not a tuple such as (3,)");
      break;
    }
    return shape;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t offset_;
  std::size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& path, std::size_t offset) {
  return Parser(text, path, offset).dictionary();
}

}  // namespace redblue::file
