#include "worker_runtime/checkpoint/manifest.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

using Json = nlohmann::json;

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::string describe(const std::vector<std::int64_t>& shape) {
  return Json(shape).dump();
}

const TensorSpec* find(const std::vector<TensorSpec>& specs, const std::string& name) {
  const auto found =
      std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

Manifest read(const Json& json) {
  if (json.at("format_version") != Manifest::kFormatVersion) {
    throw ConfigError("the manifest has format version " + json.at("format_version").dump() +
                      ", and this program reads version " + std::to_string(Manifest::kFormatVersion));
  }
  Manifest manifest;
  manifest.world_size = json.at("world_size").get<int>();
  manifest.step = json.at("step").get<std::int64_t>();
  for (const Json& file : json.at("files")) {
    manifest.files.push_back({file.at("name").get<std::string>(), file.at("size").get<std::uint64_t>(),
                              file.at("crc32c").get<std::uint32_t>()});
    if (!is_plain_name(manifest.files.back().name)) {
      throw ConfigError("the manifest names a file that is not in its folder");
    }
  }
  for (const Json& tensor : json.at("model")) {
    manifest.model.push_back({tensor.at("name").get<std::string>(), tensor.at("dtype").get<std::string>(),
                              tensor.at("shape").get<std::vector<std::int64_t>>()});
  }
  if (manifest.world_size < 1 || manifest.step < 0) {
    throw ConfigError("the manifest has a world size below 1 or a negative step");
  }
  return manifest;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json json = {{"format_version", Manifest::kFormatVersion},
               {"world_size", manifest.world_size},
               {"step", manifest.step},
               {"files", Json::array()},
               {"model", Json::array()}};
  for (const ManifestFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"size", file.size}, {"crc32c", file.crc32c}});
  }
  for (const TensorSpec& tensor : manifest.model) {
    json["model"].push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
  }
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text) {
  try {
    return read(Json::parse(text));
  } catch (const Json::parse_error&) {
    throw ConfigError("the manifest is no JSON text: it was cut short or changed");
  } catch (const Json::exception& error) {
    throw ConfigError(std::string("the manifest lacks a field or has one of another type: ") + error.what());
  }
}

std::optional<std::string> first_difference(const std::vector<TensorSpec>& saved,
                                            const std::vector<TensorSpec>& here) {
  for (const TensorSpec& spec : here) {
    const TensorSpec* other = find(saved, spec.name);
    if (other == nullptr) {
      return spec.name + " is here and not there";
    }
    if (other->shape != spec.shape) {
      return spec.name + " has shape " + describe(other->shape) + " there and " + describe(spec.shape) +
             " here";
    }
    if (other->dtype != spec.dtype) {
      return spec.name + " has dtype " + other->dtype + " there and " + spec.dtype + " here";
    }
  }
  for (const TensorSpec& spec : saved) {
    if (find(here, spec.name) == nullptr) {
      return spec.name + " is there and not here";
    }
  }
  return std::nullopt;
}

}  // namespace cpprun::worker
