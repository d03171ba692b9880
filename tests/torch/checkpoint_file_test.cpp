// The file that a checkpoint is: nothing but what was written is taken for it.
#include "torch/checkpoint_file.h"

#include "support/run.h"
#include "support/throws.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <system_error>

namespace trireme::detail {
namespace {

std::string outcome(const std::function<void()>& call) {
  try {
    call();
  } catch (const Damaged& error) {
    return std::string("damaged: ") + error.what();
  } catch (const SystemError& error) {
    return std::string("system: ") + error.what();
  }
  return "";
}

std::string example() {
  std::string numbers(300, '\0');
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<char>(i * i);
  return seal({{"empty", ""}, {"numbers", numbers}, {"text", "some words"}});
}

TEST(CheckpointFile, ChecksumIsTheStandardOne) {
  EXPECT_EQ(checksum("123456789"), 0x995DC9BBDF1939FAU);
  EXPECT_EQ(checksum(""), 0U);
  // Eight bytes a step and one a step agree: a checksum of a longer text starts as that of a shorter one goes on.
  for (std::size_t length = 0; length < 40; ++length) {
    const std::string zeros(length, '\0');
    EXPECT_NE(checksum(zeros + "x"), checksum(zeros + "y"));
    EXPECT_NE(checksum(zeros), checksum(zeros + '\0'));
  }
}

TEST(CheckpointFile, GivesBackWhatWasSealed) {
  const std::string bytes = example();
  const Sections sections = unseal(bytes);
  ASSERT_EQ(sections.size(), 3U);
  EXPECT_EQ(sections.at("empty"), "");
  EXPECT_EQ(sections.at("text"), "some words");
  EXPECT_EQ(sections.at("numbers").size(), 300U);
  EXPECT_TRUE(unseal(seal({})).empty());
}

TEST(CheckpointFile, IsRefusedWithAnyBitFlipped) {
  const std::string whole = example();
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    ASSERT_TRUE(outcome([&] { unseal(bytes); }).starts_with("damaged: ")) << "bit " << bit;
  }
}

TEST(CheckpointFile, IsRefusedWithAnotherLength) {
  const std::string whole = example();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    ASSERT_TRUE(outcome([&] { unseal(std::string_view(whole).substr(0, length)); }).starts_with("damaged: ")) << length;
  }
  EXPECT_NE(outcome([&] { unseal(whole + "x"); }).find("1 bytes too many"), std::string::npos);
  EXPECT_NE(outcome([&] { unseal(std::string_view(whole).substr(0, whole.size() - 3)); }).find("'text' should have 10"),
            std::string::npos);
}

// Lengths that lie, under checksums that do not.
TEST(CheckpointFile, MakesNoRoomForLengthsThatCantBe) {
  std::string bytes = example();
  const std::size_t header_bytes = 16 + 3 * 32 + 8;
  for (const std::uint64_t length : {std::uint64_t{1} << 40, ~std::uint64_t{0}, ~std::uint64_t{0} - 300}) {
    std::memcpy(bytes.data() + 16 + 32 + 16, &length, 8);
    const std::uint64_t sum = checksum(std::string_view(bytes).substr(0, header_bytes - 8));
    std::memcpy(bytes.data() + header_bytes - 8, &sum, 8);
    EXPECT_NE(outcome([&] { unseal(bytes); }).find("cut off"), std::string::npos);
  }
}

TEST(CheckpointFile, OfAnotherVersionIsNotCalledDamaged) {
  for (const char version : {1, 3}) {  // the one before did not say which parameters have gradients
    std::string bytes = seal({});
    bytes[8] = version;
    const std::uint64_t sum = checksum(std::string_view(bytes).substr(0, 16));
    std::memcpy(bytes.data() + 16, &sum, 8);
    EXPECT_NE(test::usage_error([&] { unseal(bytes); }).find("it is of version " + std::to_string(version)),
              std::string::npos);
  }
}

TEST(CheckpointFile, ReplacesWhatWasThere) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  write_file(folder / "file", example());
  EXPECT_EQ(read_file(folder / "file"), example());
  EXPECT_FALSE(std::filesystem::exists(folder / "file.part"));
}

TEST(CheckpointFile, MayBeTheFirstInFoldersThatAreNotThere) {
  const TemporaryFolder folder;
  for (const char* path : {"a/b/c", "a/b/c", "a/d/", "e/../f"}) {
    make_folder(folder / path);
    write_file(folder / path + "/file", "bytes");
    EXPECT_EQ(read_file(folder / path + "/file"), "bytes");
  }
  write_file(folder / "taken", "");
  EXPECT_THROW(make_folder(folder / "taken/x"), std::system_error);
}

TEST(CheckpointFile, SaysWhatTheSystemRefused) {
  const TemporaryFolder folder;
  EXPECT_NE(outcome([&] { write_file(folder / "none/file", ""); }).find("none/file.part: No such file"),
            std::string::npos);
  EXPECT_NE(outcome([&] { read_file(folder / "none"); }).find("none: No such file"), std::string::npos);
  // The name is taken by a folder: what was written aside does not stay.
  std::filesystem::create_directories(folder / "taken/x");
  EXPECT_NE(outcome([&] { write_file(folder / "taken", "bytes"); }).find("could not rename"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "taken.part"));
}

}  // namespace
}  // namespace trireme::detail
