#include "redblue/files/safetensors.hpp"

#include "redblue/files/atomic_file.hpp"
#include "support.hpp"

namespace redblue::file {
namespace {

using Indices = std::vector<index_t>;
using Names = std::vector<std::string>;

std::string safetensors(const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(std::uint64_t{header.size()} >> 8 * i & 0xff);
  return out + header + data;
}

/// "q" of 24 bytes, with these fields.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return safetensors(R"({"q":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                     std::string(24, '\1'));
}

std::string info(const std::string& name, const std::string& dtype, index_t n, index_t begin, index_t end) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + std::to_string(n) + R"(],"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

Safetensors parsed_safetensors(const std::string& text) {
  auto bytes = std::make_shared<std::vector<std::byte>>(bytes_of(text));
  return parse_safetensors(*bytes, "x.safetensors", bytes);
}

std::string safetensors_error(const std::string& text) {
  return message_of<IoError>([&] { parsed_safetensors(text); });
}

TEST(Safetensors, RoundTripsEveryTypeAndRankBitForBit) {
  const TemporaryDirectory dir;
  const auto data = noise(2 * 3 * 4 * 5 * 8);
  std::vector<NamedTensor> tensors;
  for (const DType type : kAllTypes)
    for (const Indices& shape : {Indices{}, {7}, {1, 1}, {3, 5}, {2, 3, 4, 5}, {0}, {3, 0, 2}})
      tensors.push_back({"t" + std::to_string(tensors.size()), c_order_tensor(type, shape, data.data())});
  write_safetensors(dir / "x.safetensors", tensors, {{"format", "pt"}, {"\xc3\xa9", "a\nb"}});

  const Safetensors file = read_safetensors(dir / "x.safetensors");
  EXPECT_EQ(file.names().size(), tensors.size());
  EXPECT_EQ(file.metadata(), (Safetensors::Metadata{{"format", "pt"}, {"\xc3\xa9", "a\nb"}}));
  for (const auto& [name, written] : tensors) {
    const Tensor read = file.tensor(name);
    EXPECT_EQ(read.dtype(), written.dtype);
    EXPECT_EQ(read.shape(), written.shape);
    EXPECT_EQ(bits_of(read), bits_of(Tensor(written, nullptr)));
    EXPECT_FALSE(read.copied()) << "our files are aligned: used where it lies in the file";
  }
}

TEST(Safetensors, WritesTheBytesOfTheReferenceImplementation) {
  // As `safetensors.numpy.save({"b": f16 [1, 2], "a": f32 [3]}, {"k": "v"})` of Python's safetensors 0.8.0 does.
  const TemporaryDirectory dir;
  const std::uint16_t b[] = {0x3c00, 0x4000};
  const float a[] = {3, 4, 5};
  write_safetensors(dir / "x",
                    {{"b", c_order_tensor(DType::f16, {1, 2}, b)}, {"a", c_order_tensor(DType::f32, {3}, a)}},
                    {{"k", "v"}});
  std::string header = R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
                       R"("b":{"dtype":"F16","shape":[1,2],"data_offsets":[12,16]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read_text(dir / "x"), safetensors(header, std::string(reinterpret_cast<const char*>(a), 12) +
                                                          std::string(reinterpret_cast<const char*>(b), 4)));
}

TEST(Safetensors, WritesStridedTensorsRowMajor) {
  const TemporaryDirectory dir;
  const float data[] = {0, 1, 2, 3, 4, 5};
  const FileTensor transposed{DType::f32, {3, 2}, {1, 3}, reinterpret_cast<const std::byte*>(data), false};
  write_safetensors(dir / "x", {{"t", transposed}});
  const Tensor t = read_safetensors(dir / "x").tensor("t");
  EXPECT_EQ(t.strides(), (Indices{2, 1}));
  EXPECT_EQ(std::vector<float>(t.as<float>(), t.as<float>() + 6), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST(Safetensors, RefusesNamesThatCannotBeWritten) {
  const TemporaryDirectory dir;
  const float x = 0;
  const FileTensor t = c_order_tensor(DType::f32, {}, &x);
  const auto message = [&](const std::vector<NamedTensor>& tensors) {
    return message_of<InvalidProblem>([&] { write_safetensors(dir / "x", tensors); });
  };
  EXPECT_CONTAINS(message({{"q", t}, {"q", t}}), "two tensors are named 'q'");
  EXPECT_CONTAINS(message({{"__metadata__", t}}), "reserves");
  EXPECT_CONTAINS(message({{"\xff", t}}), "UTF-8");
  EXPECT_CONTAINS(message({{"q", {DType::f32, {2}, {}, nullptr, false}}}), "tensor 'q'");
  EXPECT_EQ(dir.entries(), 0);
}

TEST(Safetensors, ATensorOutlivesTheFileObject) {
  const TemporaryDirectory dir;
  const float x = 2.5;
  write_safetensors(dir / "x", {{"q", c_order_tensor(DType::f32, {}, &x)}});
  const Tensor t = read_safetensors(dir / "x").tensor("q");
  std::filesystem::remove(dir / "x");
  EXPECT_EQ(*t.as<float>(), 2.5f);
}

TEST(Safetensors, AMissingNameListsTheNamesThereAre) {
  const Safetensors file = parsed_safetensors(
      safetensors("{" + info("k", "F32", 1, 0, 4) + "," + info("q", "F32", 1, 4, 8) + "}", "12345678"));
  EXPECT_EQ(file.names(), (Names{"k", "q"}));
  EXPECT_TRUE(file.contains("q"));
  EXPECT_FALSE(file.contains("v"));
  EXPECT_EQ(message_of<InvalidProblem>([&] { file.tensor("v"); }), "'x.safetensors' has no tensor 'v'; it has k, q");
}

TEST(Safetensors, AMissingNameOfALargeFileListsSomeNames) {
  std::string header = "{";
  for (int i = 0; i < 50; ++i) header += (i != 0 ? "," : "") + info("t" + std::to_string(i), "F32", 0, 0, 0);
  EXPECT_CONTAINS(message_of<InvalidProblem>([&] { parsed_safetensors(safetensors(header + "}", "")).tensor("v"); }),
                  ", and 10 more");
}

TEST(Safetensors, ErrorsShowNamesCutAndWithoutControlCharacters) {
  std::string name = "a\x1b[31m";
  for (int i = 0; i < 100; ++i) name += "\xc3\xa9";
  const std::string message =
      message_of<InvalidProblem>([&] { parsed_safetensors(safetensors("{}", "")).tensor(name); });
  EXPECT_CONTAINS(message, "'a\\x1b[31m\xc3\xa9");
  EXPECT_CONTAINS(message, "\xc3\xa9...'; it has none");
}

TEST(Safetensors, OtherTypesLeaveTheRestOfTheFileReadable) {
  const Safetensors file =
      parsed_safetensors(safetensors("{" + info("lengths", "I64", 1, 0, 8) + "," + info("new", "X9", 5, 8, 12) + "," +
                                         info("q", "F32", 1, 12, 16) + "}",
                                     "0123456789abcdef"));
  EXPECT_EQ(file.tensor("q").size(), 1);
  EXPECT_EQ(message_of<Unsupported>([&] { file.tensor("lengths"); }),
            "tensor 'lengths' of 'x.safetensors' has dtype I64; redblue computes with F64, F32, F16, BF16");
  EXPECT_CONTAINS(message_of<Unsupported>([&] { file.tensor("new"); }), "X9");
  EXPECT_EQ(file.entry("lengths").bytes.size(), 8u);
  EXPECT_EQ(static_cast<char>(file.entry("new").bytes[0]), '8');
}

TEST(Safetensors, ReadsMisalignedTensors) {
  const Safetensors file = parsed_safetensors(
      safetensors("{" + info("a", "U8", 3, 0, 3) + "," + info("q", "F64", 1, 3, 11) + "}", "abc12345678"));
  const Tensor t = file.tensor("q");
  EXPECT_EQ(std::memcmp(t.as<double>(), "12345678", 8), 0);
}

TEST(Safetensors, EntriesStandInTheOrderOfTheirData) {
  const Safetensors file = parsed_safetensors(
      safetensors("{" + info("q", "F32", 1, 4, 8) + "," + info("z", "F32", 1, 0, 4) + "}", "12345678"));
  EXPECT_EQ(file.entries()[0].name, "z");
  EXPECT_EQ(file.entries()[1].name, "q");
}

TEST(Safetensors, RefusesAFileCutAtAnyByte) {
  const std::string whole =
      safetensors("{" + info("k", "F32", 1, 0, 4) + "," + info("q", "F64", 1, 4, 12) + "}", "123456789012");
  parsed_safetensors(whole);
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_THROW(parsed_safetensors(whole.substr(0, n)), IoError) << n;
}

TEST(Safetensors, SurvivesAnyChangeOfOneByte) {
  const std::string whole =
      safetensors("{" + info("k", "F32", 1, 0, 4) + "," + info("q", "F64", 1, 4, 12) + "}", "123456789012");
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (int change = 1; change < 256; ++change) {
      std::string text = whole;
      text[i] = static_cast<char>(text[i] ^ change);
      try {
        const Safetensors file = parsed_safetensors(text);
        for (const auto& name : file.names()) bits_of(file.tensor(name));
      } catch (const Error&) {
      }
    }
}

TEST(Safetensors, RefusesHeaderLengthsThatCannotBe) {
  EXPECT_CONTAINS(safetensors_error("1234567"), "7 bytes");
  EXPECT_CONTAINS(safetensors_error(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)), "100000001 bytes, above the limit");
  EXPECT_CONTAINS(safetensors_error(std::string(8, '\xff') + "{}"), "18446744073709551615 bytes, above the limit");
  EXPECT_CONTAINS(safetensors_error(std::string("\x03\0\0\0\0\0\0\0{}", 10)), "3 bytes, but only 2 bytes follow");
}

TEST(Safetensors, RefusesHeadersThatAreNotAJsonObject) {
  for (const char* header : {"", "[]", " {}", "\xef\xbb\xbf{}", "null"})
    EXPECT_CONTAINS(safetensors_error(safetensors(header, "")), "does not start with '{'");
  for (const char* header : {"{", "{}x", "{\"a\"}", "{\"\xff\":1}", "{'a':1}", "{\"a\":1e999}", "{/**/}"})
    EXPECT_CONTAINS(safetensors_error(safetensors(header, "")), "not JSON");
}

TEST(Safetensors, RefusesTextHiddenBehindANul) {
  EXPECT_CONTAINS(safetensors_error(safetensors(std::string("{}\0garbage", 10), "")), "NUL");
}

TEST(Safetensors, RefusesDeepNesting) {
  EXPECT_CONTAINS(safetensors_error(safetensors("{\"a\":" + std::string(100000, '['), "")), "nested too deeply");
}

TEST(Safetensors, RefusesDuplicateKeys) {
  const std::string q = info("q", "F32", 1, 0, 4);
  EXPECT_CONTAINS(safetensors_error(safetensors("{" + q + "," + q + "}", "1234")), "'q' twice");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32","dtype":"F32")", "[6]", "[0,24]")), "'dtype' twice");
  EXPECT_CONTAINS(safetensors_error(safetensors(R"({"__metadata__":{"a":"1","\u0061":"2"}})", "")), "'a' twice");
}

TEST(Safetensors, RefusesHolesAndOverlaps) {
  const auto two = [](index_t begin, index_t end) {
    return safetensors("{" + info("a", "F32", 2, 0, 8) + "," + info("q", "F32", (end - begin) / 4, begin, end) + "}",
                       std::string(24, '\1'));
  };
  EXPECT_EQ(parsed_safetensors(two(8, 24)).names().size(), 2u);
  EXPECT_CONTAINS(safetensors_error(two(12, 24)), "'q' starts at 12, that before it ends at 8");
  EXPECT_CONTAINS(safetensors_error(two(4, 24)), "'q' starts at 4, that before it ends at 8");
  EXPECT_CONTAINS(safetensors_error(two(0, 24)), "starts at 0, that before it ends at 8");
  EXPECT_CONTAINS(safetensors_error(two(8, 20)), "end at byte 20 of 24");
  EXPECT_CONTAINS(safetensors_error(safetensors("{" + info("q", "F32", 4, 8, 24) + "}", std::string(24, '\1'))),
                  "starts at 8");
  EXPECT_CONTAINS(safetensors_error(safetensors("{}", "x")), "end at byte 0 of 1");
}

TEST(Safetensors, RefusesOffsetsOutsideTheData) {
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[7]", "[0,28]")), "[0, 28], outside the 24 bytes");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[6]", "[24,0]")), "[24, 0]");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[6]", "[-24,0]")), "-24 in its data_offsets");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[6]", "[0,24,24]")), "not two numbers");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[6]", "[0,9223372036854775808]")), "9223372036854775808");
}

TEST(Safetensors, RefusesShapesThatDoNotFitTheBytes) {
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[2,2]", "[0,24]")), "of shape [2, 2] and dtype F32 has 24 bytes");
  EXPECT_CONTAINS(safetensors_error(one(R"("I64")", "[2]", "[0,24]")), "I64 has 24 bytes");
  EXPECT_CONTAINS(safetensors_error(one(R"("F4")", "[47]", "[0,24]")), "F4 has 24 bytes");
  EXPECT_EQ(parsed_safetensors(one(R"("F4")", "[48]", "[0,24]")).names(), Names{"q"});
}

TEST(Safetensors, RefusesShapesThatCannotBe) {
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[4294967296,4294967296]", "[0,24]")), "overflows");
  EXPECT_CONTAINS(safetensors_error(one(R"("X9")", "[4294967296,4294967296]", "[0,24]")), "overflows");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[-2,-3]", "[0,24]")), "-2 in its shape");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[18446744073709551616]", "[0,24]")), "in its shape");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[6.0]", "[0,24]")), "6.0 in its shape");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "[true]", "[0,24]")), "true in its shape");
  EXPECT_CONTAINS(safetensors_error(one(R"("F32")", "6", "[0,24]")), "not a list");
}

TEST(Safetensors, RefusesEntriesOfTheWrongForm) {
  EXPECT_CONTAINS(safetensors_error(safetensors(R"({"q":1})", "")), "'q' is not an object");
  EXPECT_CONTAINS(safetensors_error(safetensors(R"({"q":{}})", "")), "has no dtype");
  EXPECT_CONTAINS(safetensors_error(one("4", "[6]", "[0,24]")), "dtype that is not a string");
  EXPECT_CONTAINS(safetensors_error(safetensors(R"({"__metadata__":[]})", "")), "not an object");
  EXPECT_CONTAINS(safetensors_error(safetensors(R"({"__metadata__":{"a":1}})", "")), "'a' is not a string");
}

TEST(Safetensors, ReadsTheRealInputs) {
  const auto data = std::filesystem::path(__FILE__).parent_path() / "../../../shared/data";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "no ../shared/data";
  const Safetensors file = read_safetensors((data / "minilm-padded.safetensors").string());
  EXPECT_EQ(file.tensor("q").shape(), (Indices{4, 12, 128, 32}));
  EXPECT_EQ(file.entry("lengths").dtype, "I64");
  std::vector<std::int64_t> lengths(4);
  std::memcpy(lengths.data(), file.entry("lengths").bytes.data(), 32);
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{97, 33, 128, 61}));
}

TEST(Safetensors, SizeOfTheFileIsKnownBeforeItIsWritten) {
  const TemporaryDirectory dir;
  const auto data = noise(1000 * 8);
  const std::vector<NamedTensor> tensors = {{"half", c_order_tensor(DType::f16, {3, 5}, data.data())},
                                            {"a long name \u00e9", c_order_tensor(DType::f64, {10, 100}, data.data())},
                                            {"none", c_order_tensor(DType::f32, {0, 4}, data.data())}};
  for (std::size_t n = 0; n <= tensors.size(); ++n)
    for (const Safetensors::Metadata& metadata : {Safetensors::Metadata{}, Safetensors::Metadata{{"format", "pt"}}}) {
      const std::vector<NamedTensor> list(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(n));
      write_safetensors(dir / "x", list, metadata);
      EXPECT_EQ(safetensors_file_size(list, metadata), static_cast<index_t>(std::filesystem::file_size(dir / "x")));
    }
}

}  // namespace
}  // namespace redblue::file
