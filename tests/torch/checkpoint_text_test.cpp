// The parts of a checkpoint that need no LibTorch: headers, manifests, checksums, folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "tests/torch/temporary_folder.hpp"
#include "worker_runtime/checkpoint/checkpoint_folder.hpp"
#include "worker_runtime/checkpoint/crc32c.hpp"
#include "worker_runtime/checkpoint/durable_file.hpp"
#include "worker_runtime/checkpoint/safetensors_header.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker::test {
namespace {

using testing::HasSubstr;

TEST(Crc32c, GivesTheValuesOfRfc3720) {
  const auto crc_of = [](const std::string& bytes) {
    Crc32c crc;
    crc.update(bytes.data(), bytes.size());
    return crc.value();
  };
  EXPECT_EQ(crc_of("123456789"), 0xE3069283u);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc_of(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc_of(""), 0u);
}

TEST(Crc32c, DoesNotDependOnThePieces) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) {
    bytes.push_back(static_cast<char>(i * 7));
  }
  Crc32c whole;
  whole.update(bytes.data(), bytes.size());
  for (std::size_t cut = 0; cut <= 40; ++cut) {
    Crc32c pieces;
    pieces.update(bytes.data(), cut);
    pieces.update(bytes.data() + cut, bytes.size() - cut);
    EXPECT_EQ(pieces.value(), whole.value()) << cut;
  }
}

std::string refusal(const std::string& header, std::uint64_t data_size) {
  try {
    parse_safetensors_header(header, data_size);
    return "(accepted)";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(SafetensorsHeader, ReadsWhatItWrites) {
  const std::vector<TensorEntry> entries{{{"a.b", "F32", {2, 3}}, 0, 24},
                                         {{"empty", "BF16", {0, 7}}, 24, 24},
                                         {{"scalar", "I64", {}}, 24, 32},
                                         {{"ä\n\"", "BOOL", {5}}, 32, 37}};
  const std::string text = to_json(entries);
  EXPECT_EQ(text.size() % 8, 0u);
  const std::vector<TensorEntry> read = parse_safetensors_header(text, 37);
  ASSERT_EQ(read.size(), entries.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].spec.name, entries[i].spec.name);
    EXPECT_EQ(read[i].spec.dtype, entries[i].spec.dtype);
    EXPECT_EQ(read[i].spec.shape, entries[i].spec.shape);
    EXPECT_EQ(read[i].begin, entries[i].begin);
    EXPECT_EQ(read[i].end, entries[i].end);
  }
}

TEST(SafetensorsHeader, LeavesMetadataAside) {
  EXPECT_TRUE(parse_safetensors_header(R"({"__metadata__": {"format": "pt"}})", 0).empty());
}

TEST(SafetensorsHeader, RefusesWhatDoesNotAddUp) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"x": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" + offsets +
           "}}";
  };
  EXPECT_EQ(refusal(one("F32", "[2]", "[0, 8]"), 8), "(accepted)");
  EXPECT_THAT(refusal(one("F32", "[2]", "[0, 8]"), 7), HasSubstr("cut short"));
  EXPECT_THAT(refusal(one("F32", "[2]", "[0, 8]"), 9), HasSubstr("1 bytes that belong to no tensor"));
  EXPECT_THAT(refusal(one("F32", "[3]", "[0, 8]"), 8), HasSubstr("do not fit"));
  EXPECT_THAT(refusal(one("F32", "[2]", "[8, 0]"), 8), HasSubstr("do not fit"));
  EXPECT_THAT(refusal(one("F32", "[2]", "[1, 9]"), 9), HasSubstr("does not begin"));
  EXPECT_THAT(refusal(one("F8_E4M3", "[2]", "[0, 2]"), 2), HasSubstr("F8_E4M3"));
  EXPECT_THAT(refusal(one("F32", "[-2]", "[0, 8]"), 8), HasSubstr("whole number"));
  EXPECT_THAT(refusal(one("F32", "[2.0]", "[0, 8]"), 8), HasSubstr("whole number"));
  EXPECT_THAT(refusal(one("F32", "\"2\"", "[0, 8]"), 8), HasSubstr("needs exactly"));
  EXPECT_THAT(refusal(one("F32", "[4294967296, 4294967296]", "[0, 0]"), 0), HasSubstr("impossibly large"));
  EXPECT_THAT(refusal(one("F32", "[0, 9223372036854775807]", "[0, 0]"), 0), HasSubstr("impossibly large"));
  EXPECT_THAT(refusal(one("F32", "[18446744073709551615]", "[0, 0]"), 0), HasSubstr("impossibly large"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("{\"x\": ", 0), HasSubstr("no JSON"));
  EXPECT_THAT(refusal(std::string(100'000, '['), 0), HasSubstr("no JSON"));
  const std::string entry = R"("x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]})";
  EXPECT_THAT(refusal("{" + entry + "," + entry + "}", 1), HasSubstr("comes twice"));
  EXPECT_THAT(refusal("{" + entry + R"(, "y": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})", 1),
              HasSubstr("does not begin"));
}

TEST(SafetensorsHeader, NeverCrashesOnChangedBytes) {
  const std::string good = to_json(
      {{{"weight", "F32", {2, 3}}, 0, 24}, {{"bias", "F32", {3}}, 24, 36}, {{"flag", "BOOL", {}}, 36, 37}});
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    for (unsigned change = 0; change <= random() % 3; ++change) {
      text[random() % text.size()] = static_cast<char>(random() % 256);
    }
    accepted += refusal(text, 37) == "(accepted)" ? 1 : 0;
  }
  EXPECT_LT(accepted, 5000);
}

TEST(Manifest, ReadsWhatItWrites) {
  Manifest manifest;
  manifest.world_size = 3;
  manifest.step = 1'234'567'890'123;
  manifest.files = {{"model.safetensors", 123, 0xFFFFFFFFu}, {"rng-0.safetensors", 0, 0}};
  manifest.model = {{"fc.weight", "F32", {3, 4}}, {"n", "I64", {}}};
  const Manifest read = parse_manifest(to_json(manifest));
  EXPECT_EQ(to_json(read), to_json(manifest));
  EXPECT_EQ(read.step, manifest.step);
  EXPECT_EQ(read.files[0].crc32c, 0xFFFFFFFFu);
  EXPECT_EQ(read.model[0].shape, (std::vector<std::int64_t>{3, 4}));
}

TEST(Manifest, RefusesOtherTexts) {
  const std::string good = to_json(Manifest{});
  EXPECT_NO_THROW(parse_manifest(good));
  for (std::size_t length = 0; length + 2 < good.size(); ++length) {
    EXPECT_THROW(parse_manifest(good.substr(0, length)), ConfigError) << length;
  }
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_THROW(parse_manifest(changed("\"format_version\": 1", "\"format_version\": 2")), ConfigError);
  EXPECT_THROW(parse_manifest(changed("\"world_size\": 1", "\"world_size\": 0")), ConfigError);
  EXPECT_THROW(parse_manifest(changed("\"step\": 0", "\"step\": \"0\"")), ConfigError);
  EXPECT_THROW(
      parse_manifest(changed("\"files\": []", R"("files": [{"name": "../x", "size": 1, "crc32c": 1}])")),
      ConfigError);
}

TEST(Manifest, NamesTheFirstDifference) {
  const std::vector<TensorSpec> saved{{"a", "F32", {2}}, {"b", "F32", {3, 4}}};
  EXPECT_EQ(first_difference(saved, {{"b", "F32", {3, 4}}, {"a", "F32", {2}}}), std::nullopt)
      << "order is no difference";
  EXPECT_EQ(first_difference(saved, {{"a", "F32", {2}}, {"b", "F32", {3, 5}}}),
            "b has shape [3,4] there and [3,5] here");
  EXPECT_EQ(first_difference(saved, {{"a", "F64", {2}}, {"b", "F32", {3, 4}}}),
            "a has dtype F32 there and F64 here");
  EXPECT_EQ(first_difference(saved, {{"a", "F32", {2}}}), "b is there and not here");
  EXPECT_EQ(first_difference(saved, {{"a", "F32", {2}}, {"b", "F32", {3, 4}}, {"c", "F32", {1}}}),
            "c is here and not there");
}

TEST(DurableFile, IsThereWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "file";
  {
    DurableFile file(path);
    file.append("half", 4);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "nothing remains without a commit";
  const WrittenFile written = write_durable_file(path, "123456789");
  EXPECT_EQ(written.size, 9u);
  EXPECT_EQ(written.crc32c, 0xE3069283u);
  EXPECT_EQ(measure_file(path).crc32c, written.crc32c);
  EXPECT_EQ(read_file(path, 9), "123456789");
  EXPECT_THROW(read_file(path, 8), ConfigError);
  EXPECT_THROW(write_durable_file(folder.path() / "missing" / "file", "x"), std::system_error);
}

void make_checkpoint(const std::filesystem::path& directory, std::int64_t step, const std::string& text) {
  const std::filesystem::path unfinished = make_unfinished(directory, step);
  const WrittenFile written = write_durable_file(unfinished / "data", text);
  Manifest manifest;
  manifest.step = step;
  manifest.files = {{"data", written.size, written.crc32c}};
  write_durable_file(unfinished / kManifestFile, to_json(manifest));
  publish_checkpoint(unfinished, checkpoint_path(directory, step));
}

TEST(CheckpointFolder, ListsNewestFirstAndOnlyFinishedOnes) {
  const TemporaryFolder folder;
  EXPECT_TRUE(list_checkpoints(folder.path() / "missing").empty());
  for (const std::int64_t step : {9, 100, 10}) {
    make_checkpoint(folder.path(), step, "x");
  }
  make_unfinished(folder.path(), 101);
  std::filesystem::create_directory(folder.path() / "step-7x");
  std::filesystem::create_directory(folder.path() / "step-");
  std::ofstream(folder.path() / "step-8") << "a file";
  std::vector<std::int64_t> steps;
  for (const CheckpointFolder& found : list_checkpoints(folder.path())) {
    steps.push_back(found.step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{100, 10, 9}));
  remove_older_checkpoints(folder.path(), 2);
  EXPECT_FALSE(std::filesystem::exists(checkpoint_path(folder.path(), 9)));
  EXPECT_TRUE(std::filesystem::exists(checkpoint_path(folder.path(), 10)));
  remove_unfinished(folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "step-101.unfinished"));
}

TEST(CheckpointFolder, ReplacesOneOfTheSameStep) {
  const TemporaryFolder folder;
  make_checkpoint(folder.path(), 5, "old");
  make_checkpoint(folder.path(), 5, "new");
  EXPECT_EQ(read_file(checkpoint_path(folder.path(), 5) / "data", 10), "new");
  EXPECT_EQ(verify_checkpoint(checkpoint_path(folder.path(), 5)).step, 5);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "nothing left beside it";
}

TEST(CheckpointFolder, FindsDamage) {
  const TemporaryFolder folder;
  make_checkpoint(folder.path(), 1, "content");
  const std::filesystem::path path = checkpoint_path(folder.path(), 1);
  const auto damage = [&] {
    try {
      verify_checkpoint(path);
      return std::string("(none)");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(damage(), "(none)");
  std::ofstream(path / "data") << "contenu";
  EXPECT_THAT(damage(), HasSubstr("data does not have its recorded checksum"));
  std::ofstream(path / "data") << "conten";
  EXPECT_THAT(damage(), HasSubstr("data has 6 bytes instead of 7"));
  std::filesystem::remove(path / "data");
  EXPECT_THAT(damage(), HasSubstr("data is missing"));
  std::filesystem::remove(path / kManifestFile);
  EXPECT_THAT(damage(), HasSubstr("not complete"));
}

}  // namespace
}  // namespace cpprun::worker::test
