#include "redblue/files/npy.hpp"

#include <algorithm>

#include "redblue/files/atomic_file.hpp"
#include "support.hpp"

namespace redblue::file {
namespace {

using Indices = std::vector<index_t>;

/// A file of the given format with this header text, unpadded as the formats allow.
std::string npy(const std::string& header, const std::string& data, int version = 1) {
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) out += static_cast<char>(header.size() >> 8 * i & 0xff);
  return out + header + data;
}

std::string head(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

template <class T>
std::string raw(const std::vector<T>& values, bool big_endian = false) {
  std::string out;
  for (const T& v : values) {
    std::string bytes(reinterpret_cast<const char*>(&v), sizeof(T));
    if (big_endian) std::reverse(bytes.begin(), bytes.end());
    out += bytes;
  }
  return out;
}

const std::vector<float> kSix{0, 1, 2, 3, 4, 5};

template <class T>
std::vector<T> values(const Tensor& t) {
  std::vector<T> out;
  for (const std::uint64_t bits : bits_of(t)) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    out.push_back(value);
  }
  return out;
}

Tensor parsed_npy(const std::string& text) {
  auto bytes = std::make_shared<std::vector<std::byte>>(bytes_of(text));
  return Tensor(parse_npy(*bytes), bytes);
}

std::string npy_error(const std::string& text) {
  return message_of<IoError>([&] { parsed_npy(text); });
}

TEST(Npy, RoundTripsEveryTypeAndRankBitForBit) {
  const TemporaryDirectory dir;
  for (const DType type : kAllTypes)
    for (const Indices& shape : {Indices{}, {7}, {1, 1}, {3, 5}, {2, 3, 4, 5}, {0}, {3, 0, 2}}) {
      const auto data = noise(2 * 3 * 4 * 5 * 8);
      const FileTensor written = c_order_tensor(type, shape, data.data());
      write_npy(dir / "x.npy", written);
      const Tensor read = read_npy(dir / "x.npy");
      EXPECT_EQ(read.dtype(), type);
      EXPECT_EQ(read.shape(), shape);
      EXPECT_EQ(bits_of(read), bits_of(Tensor(written, nullptr)));
      EXPECT_FALSE(read.copied()) << "little-endian and aligned: used where it lies in the file";
    }
}

TEST(Npy, ReadsFormats1To3) {
  for (const int version : {1, 2, 3})
    EXPECT_EQ(values<float>(parsed_npy(npy(head("<f4", "(2, 3)"), raw(kSix), version))), kSix);
}

TEST(Npy, RefusesOtherFormats) {
  for (const int version : {0, 4, 255})
    EXPECT_CONTAINS(npy_error(npy(head("<f4", "(6,)"), raw(kSix), version)), "format");
}

TEST(Npy, ReadsFortranOrder) {
  const Tensor t = parsed_npy(npy(head("<f4", "(2, 3)", "True"), raw(kSix)));
  EXPECT_EQ(t.strides(), (Indices{1, 2}));
  EXPECT_EQ(values<float>(t), (std::vector<float>{0, 2, 4, 1, 3, 5}));
}

TEST(Npy, ReadsBigEndian) {
  const std::vector<double> doubles{1.5, -2.25, 1e300};
  EXPECT_EQ(values<double>(parsed_npy(npy(head(">f8", "(3,)"), raw(doubles, true)))), doubles);
  EXPECT_EQ(values<float>(parsed_npy(npy(head(">f4", "(3, 2)"), raw(kSix, true)))), kSix);
  const std::vector<std::uint16_t> halves{0x3c00, 0xc000, 0x7bff};
  EXPECT_EQ(values<std::uint16_t>(parsed_npy(npy(head(">f2", "(3,)"), raw(halves, true)))), halves);
}

TEST(Npy, ReadsBigEndianFortranOrder) {
  const Tensor t = parsed_npy(npy(head(">f4", "(2, 3)", "True"), raw(kSix, true), 3));
  EXPECT_EQ(values<float>(t), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  EXPECT_TRUE(t.copied());
}

TEST(Npy, TakesEveryOtherByteOrderMarkForThatOfTheMachine) {
  for (const char* descr : {"=f4", "|f4", "f4"})
    EXPECT_EQ(values<float>(parsed_npy(npy(head(descr, "(6,)"), raw(kSix)))), kSix);
}

TEST(Npy, TakesTwoVoidBytesForBf16) {
  for (const char* descr : {"<V2", "|V2", "V2"})
    EXPECT_EQ(parsed_npy(npy(head(descr, "(1,)"), raw<std::uint16_t>({0x3f80}))).dtype(), DType::bf16);
}

TEST(Npy, ReadsMisalignedData) {
  std::string header = head("<f8", "(2,)");
  while ((10 + header.size()) % 8 != 3) header.insert(header.size() - 1, " ");
  const std::vector<double> expected{1.5, 2.5};
  const Tensor t = parsed_npy(npy(header, raw(expected)));
  EXPECT_EQ(values<double>(t), expected);
  EXPECT_EQ(t.as<double>()[1], 2.5);
}

TEST(Npy, ReadsHeadersInAnyOrderAndPythonTwosLongs) {
  EXPECT_EQ(values<float>(parsed_npy(npy("{\"shape\":(2L,3L),'fortran_order':False,\"descr\":\"<f4\"}", raw(kSix)))),
            kSix);
}

TEST(Npy, KeepsTheMappingAliveAfterTheFileIsGone) {
  const TemporaryDirectory dir;
  write_npy(dir / "x.npy", c_order_tensor(DType::f32, {6}, kSix.data()));
  const Tensor t = read_npy(dir / "x.npy");
  std::filesystem::remove(dir / "x.npy");
  EXPECT_EQ(values<float>(t), kSix);
}

TEST(Npy, MayReplaceTheFileItReads) {
  const TemporaryDirectory dir;
  write_npy(dir / "x.npy", c_order_tensor(DType::f32, {6}, kSix.data()));
  const Tensor old = read_npy(dir / "x.npy");
  write_npy(dir / "x.npy", c_order_tensor(DType::f32, {1}, kSix.data() + 5));
  EXPECT_EQ(values<float>(old), kSix);
  EXPECT_EQ(values<float>(read_npy(dir / "x.npy")), std::vector<float>{5});
}

TEST(Npy, WritesTheHeaderOfNumpy) {
  const TemporaryDirectory dir;
  write_npy(dir / "x.npy", c_order_tensor(DType::f32, {6}, kSix.data()));
  const std::string text = read_text(dir / "x.npy");
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }";
  header.resize(128 - 10 - 1, ' ');
  EXPECT_EQ(text, npy(header + '\n', raw(kSix)));
}

TEST(Npy, AlignsTheDataTo64WhateverTheHeader) {
  const TemporaryDirectory dir;
  for (index_t rank = 0; rank < 60; ++rank) {
    write_npy(dir / "x.npy", c_order_tensor(DType::f64, Indices(static_cast<std::size_t>(rank), 1), noise(8).data()));
    EXPECT_EQ(read_text(dir / "x.npy").size() % 64, 8u) << rank;
  }
}

TEST(Npy, WritesFormat2WhenTheHeaderIsTooLongForFormat1) {
  const TemporaryDirectory dir;
  for (const std::size_t rank : {20000u, 21800u, 21801u, 21802u, 21810u, 21820u, 21830u, 30000u}) {
    const Indices shape(rank, 1);
    write_npy(dir / "x.npy", c_order_tensor(DType::f32, shape, kSix.data() + 3));
    EXPECT_EQ(read_npy(dir / "x.npy").shape(), shape);
    EXPECT_EQ(values<float>(read_npy(dir / "x.npy")), std::vector<float>{3});
  }
  EXPECT_EQ(read_text(dir / "x.npy")[6], '\2');
}

TEST(Npy, WritesAnyStridesAndByteOrder) {
  const TemporaryDirectory dir;
  const FileTensor transposed{DType::f32, {3, 2}, {1, 3}, reinterpret_cast<const std::byte*>(kSix.data()), false};
  write_npy(dir / "x.npy", transposed);
  EXPECT_EQ(values<float>(read_npy(dir / "x.npy")), (std::vector<float>{0, 3, 1, 4, 2, 5}));

  const FileTensor backwards{DType::f32, {6}, {-1}, reinterpret_cast<const std::byte*>(kSix.data() + 5), false};
  write_npy(dir / "x.npy", backwards);
  EXPECT_EQ(values<float>(read_npy(dir / "x.npy")), (std::vector<float>{5, 4, 3, 2, 1, 0}));

  const auto big = bytes_of(raw(kSix, true));
  write_npy(dir / "x.npy", {DType::f32, {6}, {1}, big.data(), true});
  EXPECT_EQ(values<float>(read_npy(dir / "x.npy")), kSix);
}

TEST(Npy, WritesStridedTensorsLargerThanItsBuffer) {
  const TemporaryDirectory dir;
  const index_t rows = 300, cols = 101;
  const auto data = noise(static_cast<std::size_t>(rows * cols * 8));
  const FileTensor transposed{DType::f64, {cols, rows}, {1, cols}, data.data(), false};
  write_npy(dir / "x.npy", transposed);
  EXPECT_EQ(bits_of(read_npy(dir / "x.npy")), bits_of(Tensor(transposed, nullptr)));
}

TEST(Npy, RefusesTensorsThatMakeNoSenseBeforeWritingAnything) {
  const TemporaryDirectory dir;
  const auto* data = reinterpret_cast<const std::byte*>(kSix.data());
  for (const FileTensor& t :
       {FileTensor{DType::f32, {-1}, {1}, data, false},
        FileTensor{DType::f32, {index_t{1} << 62, 4}, {4, 1}, data, false},
        FileTensor{DType::f32, {2, 3}, {1}, data, false}, FileTensor{DType::f32, {2}, {1}, nullptr, false}})
    EXPECT_CONTAINS(message_of<InvalidProblem>([&] { write_npy(dir / "x.npy", t); }), "x.npy");
  EXPECT_EQ(dir.entries(), 0);
}

TEST(Npy, RefusesAFileCutAtAnyByte) {
  for (const int version : {1, 2, 3}) {
    const std::string whole = npy(head("<f4", "(2, 3)"), raw(kSix), version);
    for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_THROW(parsed_npy(whole.substr(0, n)), IoError) << n;
  }
}

TEST(Npy, SurvivesAnyChangeOfOneByte) {
  const std::string whole = npy(head("<f4", "(2, 3)"), raw(kSix));
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (int change = 1; change < 256; ++change) {
      std::string text = whole;
      text[i] = static_cast<char>(text[i] ^ change);
      try {
        bits_of(parsed_npy(text));
      } catch (const Error&) {
      }
    }
}

TEST(Npy, SaysHowManyBytesAreMissing) {
  const std::string message = npy_error(npy(head("<f4", "(2, 4)"), raw(kSix)));
  EXPECT_CONTAINS(message, "shape (2, 4) of f32 needs 32 bytes of data, the file has 24");
}

TEST(Npy, CutsALongShapeInAMessage) {
  std::string shape;
  for (int i = 0; i < 20; ++i) shape += "2, ";
  EXPECT_CONTAINS(npy_error(npy(head("<f4", "(" + shape + ")"), "")), "2, ... 20 dimensions) of f32");
}

TEST(Npy, RefusesBytesAfterTheData) {
  EXPECT_CONTAINS(npy_error(npy(head("<f4", "(2, 2)"), raw(kSix))), "needs 16 bytes of data, the file has 24");
}

TEST(Npy, RefusesOverflowingShapes) {
  EXPECT_CONTAINS(npy_error(npy(head("<f4", "(4294967296, 4294967296)"), raw(kSix))), "overflows");
  EXPECT_CONTAINS(npy_error(npy(head("<f4", "(4611686018427387904,)"), raw(kSix))), "overflows");
  EXPECT_CONTAINS(npy_error(npy(head("<f4", "(0, 4294967296, 4294967296)"), "")), "overflows");
  EXPECT_CONTAINS(npy_error(npy(head("<f4", "(9223372036854775808,)"), raw(kSix))), "above 2^63");
}

TEST(Npy, RefusesNegativeShapes) { EXPECT_CONTAINS(npy_error(npy(head("<f4", "(-2, -3)"), raw(kSix))), "negative"); }

TEST(Npy, NamesTheDefectOfAHeaderAndWhereItIs) {
  const auto message = [](const std::string& header) { return npy_error(npy(header, raw(kSix))); };
  EXPECT_CONTAINS(message("{'descr': '<f4', 'fortran_order': False}"), "no 'shape'");
  EXPECT_CONTAINS(message("{'shape': (6,), 'fortran_order': False}"), "no 'descr'");
  EXPECT_CONTAINS(message("{'shape': (6,), 'descr': '<f4'}"), "no 'fortran_order'");
  EXPECT_CONTAINS(message("{'shape': (6,), 'shape': (6,)}"), "'shape' twice");
  EXPECT_CONTAINS(message("{'sha\x1bpe': (6,)}"), "the unknown entry 'sha\\x1bpe'");
  EXPECT_CONTAINS(message(head("<f4", "(6)")), "(3,)");
  EXPECT_CONTAINS(message(head("<f4", "(6.,)")), "no ')'");
  EXPECT_CONTAINS(message(head("<f4", "[6]")), "no '('");
  EXPECT_CONTAINS(message(head("<f4", "(six,)")), "whole number");
  EXPECT_CONTAINS(message(head("<f4", "(6,)", "0")), "neither True nor False");
  EXPECT_CONTAINS(message(head("<f4", "(6,)") + "x"), "text after the dictionary");
  EXPECT_CONTAINS(message("{'descr': '<f4"), "a string without an end (at byte 20)");
}

TEST(Npy, RefusesWhatIsNoNpyFile) {
  EXPECT_CONTAINS(npy_error(""), "it is empty");
  EXPECT_CONTAINS(npy_error("\x93"), "does not start with");
  EXPECT_CONTAINS(npy_error("PK\3\4 an npz file is a zip"), "does not start with");
}

TEST(Npy, NamesAnUnknownTypeAndWhatWorks) {
  for (const char* descr : {"<i8", "<c8", "|O", "<f16", "|u1", ">V2", "<V4", ""}) {
    const std::string message = message_of<Unsupported>([&] { parsed_npy(npy(head(descr, "(6,)"), raw(kSix))); });
    EXPECT_CONTAINS(message, "'" + std::string(descr) + "'");
    EXPECT_CONTAINS(message, "f8, f4, f2");
  }
}

TEST(Npy, RefusesRecords) {
  const std::string header = "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}";
  EXPECT_CONTAINS(message_of<Unsupported>([&] { parsed_npy(npy(header, raw(kSix))); }), "records");
}

TEST(Npy, ErrorsNameTheFile) {
  const TemporaryDirectory dir;
  write_text(dir / "q.npy", "nonsense");
  try {
    read_npy(dir / "q.npy");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_EQ(e.path, dir / "q.npy");
    EXPECT_EQ(e.offset, 0);
    EXPECT_CONTAINS(std::string(e.what()), dir / "q.npy");
  }
}

TEST(Npy, SizeOfTheFileIsKnownBeforeItIsWritten) {
  const TemporaryDirectory dir;
  const auto data = noise(10000 * 8);
  for (const auto& shape : std::vector<std::vector<index_t>>{{}, {0}, {7}, {3, 5}, {10, 1, 10, 100}, {2, 0, 3}})
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      const FileTensor t = c_order_tensor(type, shape, data.data());
      write_npy(dir / "x", t);
      EXPECT_EQ(npy_file_size(t), static_cast<index_t>(std::filesystem::file_size(dir / "x")));
    }
  const FileTensor deep = c_order_tensor(DType::f32, std::vector<index_t>(30000, 1), data.data());  // format 2
  write_npy(dir / "x", deep);
  EXPECT_EQ(npy_file_size(deep), static_cast<index_t>(std::filesystem::file_size(dir / "x")));
}

}  // namespace
}  // namespace redblue::file
