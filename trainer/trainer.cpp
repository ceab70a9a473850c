#include "trainer/trainer.hpp"

#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "trainer/optimizer.hpp"
#include "trainer/schedule.hpp"
#include "trainer/stop_signal.hpp"
#include "worker_runtime/checkpoint/checkpoint_folder.hpp"
#include "worker_runtime/checkpoint/safetensors.hpp"
#include "worker_runtime/checkpoint/training_checkpoint.hpp"
#include "worker_runtime/collectives.hpp"
#include "worker_runtime/log.hpp"
#include "worker_runtime/parallel/distributed_data_parallel.hpp"
#include "worker_runtime/process_group.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {
namespace {

constexpr int kNonFiniteLimit = 10;

Dataset checked(Dataset dataset, const worker::ProcessGroup& group) {
  const std::int64_t examples = dataset.train.size();
  if (examples == 0) throw worker::ConfigError("training loader is empty: the data has no training examples");
  if (examples < group.world_size()) {
    throw worker::ConfigError(
        "too many processes for this training set: " + std::to_string(group.world_size()) + " processes, " +
        std::to_string(examples) + " training examples");
  }
  if (dataset.val.size() == 0) {
    throw worker::ConfigError("validation set is empty: the data has no validation examples");
  }
  for (worker::TensorDataset* set : {&dataset.train, &dataset.val}) {
    set->inputs = set->inputs.to(group.device().device);
    set->targets = set->targets.to(group.device().device);
  }
  return dataset;
}

std::string format(const char* pattern, auto... values) {
  char text[300];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

}  // namespace

Trainer::Trainer(const TrainConfig& config, Dataset dataset, const worker::ProcessGroup& group,
                 bool restarted)
    : config_(config),
      group_(group),
      dataset_(checked(std::move(dataset), group)),
      sampler_(dataset_.train.size(), group.world_size(), group.rank(),
               {.shuffle = true, .seed = config.shuffle_seed, .drop_last = true}),
      display_(group.rank() == 0, config.log_every) {
  point_.identity = {.seed = config.seed,
                     .shuffle_seed = config.shuffle_seed,
                     .batch_size = config.batch_size,
                     .accumulation_steps = config.accumulation_steps,
                     .processes = group.world_size(),
                     .train_examples = dataset_.train.size()};
  build_replica();
  begin_or_resume(restarted);
  metrics_ =
      std::make_unique<MetricsFile>(group.rank() == 0 ? config.metrics_file : "", point_.step, point_.epoch);
}

Trainer::~Trainer() = default;

void Trainer::build_replica() {
  torch::manual_seed(static_cast<std::uint64_t>(config_.seed));
  model_ = std::visit(
      [this](const auto& model) { return make_model(model, dataset_.input_shape(), dataset_.classes); },
      config_.model);
  model_->to(group_.device().device);
  worker::DistributedDataParallelOptions options;
  options.gradient_as_bucket_view = true;
  parallel_ = std::make_unique<worker::DistributedDataParallel<Model>>(model_, group_, options);
  optimizer_ = make_optimizer(config_.optimizer, model_->parameters());
  torch::manual_seed(static_cast<std::uint64_t>(config_.seed) + static_cast<std::uint64_t>(group_.rank()));
}

void Trainer::begin_or_resume(bool restarted) {
  const std::string& dir = config_.checkpoint.dir;
  if (dir.empty()) return;
  checkpoint_ = std::make_unique<worker::TrainingCheckpoint>(group_, dir, config_.checkpoint.keep);
  if (config_.checkpoint.resume == Resume::Never) return begin_anew("");

  const std::optional<worker::RestoredCheckpoint> found = checkpoint_->restore_latest({*model_, *optimizer_});
  if (!found) return;
  const ResumePoint saved = parse_resume_point(found->progress);
  if (saved.epoch >= config_.epochs && !restarted) {
    return begin_anew("the run in " + dir + " is finished (" + std::to_string(saved.step) +
                      " steps): beginning anew");
  }
  if (const std::optional<std::string> difference = first_difference(saved.identity, point_.identity)) {
    throw worker::ConfigError(
        found->path.string() + " is of a run with " + *difference +
        ": choose another \"checkpoint.dir\", or set \"checkpoint.resume\" to \"never\"");
  }
  point_ = saved;
  checkpoint_path_ = found->path.string();
  display_.line("resumed from " + checkpoint_path_);
}

void Trainer::begin_anew(const std::string& why) {
  if (!why.empty()) display_.line(why);
  if (group_.rank() == 0) {
    // The oldest first: were this interrupted, what is left is still the newest.
    std::vector<worker::CheckpointFolder> found = worker::list_checkpoints(config_.checkpoint.dir);
    std::reverse(found.begin(), found.end());
    for (const worker::CheckpointFolder& folder : found) std::filesystem::remove_all(folder.path);
  }
  worker::barrier(group_);
  parallel_.reset();
  build_replica();
}

Outcome Trainer::train() {
  const StopSignal stop;
  started_ = std::chrono::steady_clock::now();
  while (point_.epoch < config_.epochs) {
    if (!train_epoch(stop)) return Outcome::Stopped;
    evaluate_epoch();
    ++point_.epoch;
    point_.batch = 0;
    if (config_.checkpoint.every_steps == 0 || point_.epoch == config_.epochs) save_checkpoint();
  }
  return Outcome::Finished;
}

// False where the ranks have agreed to stop.
bool Trainer::train_epoch(const StopSignal& stop) {
  const worker::DataLoader loader(dataset_.train, sampler_.indices(point_.epoch), config_.batch_size);
  model_->train();
  evaluation_.reset();
  while (point_.batch < loader.size()) {
    const double rate = learning_rate();
    const Update update = train_step(loader, stop.received() != 0);
    show(update, rate);
    const std::int64_t every = config_.checkpoint.every_steps;
    const bool due = every > 0 && point_.step % every == 0 && point_.step < total_steps();
    if (due || update.stop) save_checkpoint();
    if (update.stop) return false;
  }
  return true;
}

Trainer::Update Trainer::train_step(const worker::DataLoader& loader, bool stop_wanted) {
  const std::int64_t end = std::min(point_.batch + config_.accumulation_steps, loader.size());
  // Batch norm's statistics, for an update that is skipped.
  std::vector<at::Tensor> buffers_before;
  for (const at::Tensor& buffer : model_->buffers()) buffers_before.push_back(buffer.clone());

  worker::zero_grad(*model_);
  double loss = 0;
  std::int64_t count = 0;
  for (std::int64_t number = point_.batch; number < end; ++number) {
    const worker::Batch batch = loader.batch(number);
    count += batch.targets.numel();
    if (number + 1 == end) {
      loss += backward(batch);
    } else {
      const worker::NoSync local_only = parallel_->no_sync();
      loss += backward(batch);
    }
  }

  const at::Tensor totals = torch::tensor({static_cast<double>(count), loss, stop_wanted ? 1.0 : 0.0},
                                          at::TensorOptions(group_.device().device).dtype(torch::kFloat64));
  worker::all_reduce(group_, totals);
  const at::Tensor sums = totals.cpu();
  const double examples = sums[0].item<double>();
  const Update update{.examples = static_cast<std::int64_t>(examples),
                      .loss = sums[1].item<double>() / examples,
                      .stop = sums[2].item<double>() > 0};

  if (std::isfinite(update.loss)) {
    skipped_in_a_row_ = 0;
    // The reducer has averaged the summed gradients over the ranks; what is wanted is their mean over the
    // examples.
    for (const at::Tensor& parameter : model_->parameters()) {
      if (parameter.grad().defined()) parameter.grad().mul_(group_.world_size() / examples);
    }
    if (config_.clip_norm > 0) torch::nn::utils::clip_grad_norm_(model_->parameters(), config_.clip_norm);
    set_learning_rate(*optimizer_, learning_rate());
    optimizer_->step();
  } else {
    if (++skipped_in_a_row_ == kNonFiniteLimit) {
      throw std::runtime_error("the loss was not a finite number in " + std::to_string(kNonFiniteLimit) +
                               " updates in a row, up to step " + std::to_string(point_.step + 1) +
                               ": lower \"optimizer.lr\" or set \"clip_norm\"");
    }
    const torch::NoGradGuard no_grad;
    const std::vector<at::Tensor> buffers = model_->buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(buffers_before[i]);
    if (group_.rank() == 0) {
      worker::log_warning("step " + std::to_string(point_.step + 1) +
                          ": the loss is not a finite number, the update is skipped");
    }
  }
  ++point_.step;
  point_.batch = end;
  return update;
}

// Adds the gradients of the batch's summed loss, and returns that loss.
double Trainer::backward(const worker::Batch& batch) {
  const at::Tensor inputs = dataset_.shift > 0 ? random_shift(batch.inputs, dataset_.shift) : batch.inputs;
  const at::Tensor loss =
      torch::cross_entropy_loss(parallel_->forward(inputs), batch.targets, {}, at::Reduction::Sum);
  loss.backward();
  return loss.item<double>();
}

void Trainer::evaluate_epoch() {
  evaluation_ = evaluate(*model_, dataset_.val, config_.batch_size, group_);
  metrics_->append(EvalRecord{.step = point_.step,
                              .epoch = point_.epoch,
                              .count = evaluation_->count,
                              .loss = evaluation_->loss,
                              .accuracy = evaluation_->accuracy()});
  display_.line(format("epoch %d val_n %lld loss %.4f acc %.4f", point_.epoch,
                       static_cast<long long>(evaluation_->count), evaluation_->loss,
                       evaluation_->accuracy()));
}

void Trainer::save_checkpoint() {
  if (!checkpoint_) return;
  checkpoint_path_ = checkpoint_->save(point_.step, {*model_, *optimizer_}, to_json(point_)).string();
}

void Trainer::show(const Update& update, double learning_rate) {
  const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - started_).count();
  examples_seen_ += update.examples;
  metrics_->append(StepRecord{.step = point_.step,
                              .epoch = point_.epoch,
                              .loss = update.loss,
                              .learning_rate = learning_rate,
                              .examples = update.examples,
                              .seconds = seconds});
  display_.step({.epoch = point_.epoch,
                 .epochs = config_.epochs,
                 .step = point_.step,
                 .total_steps = total_steps(),
                 .loss = update.loss,
                 .learning_rate = learning_rate,
                 .examples_per_second = static_cast<double>(examples_seen_) / seconds},
                now);
}

void Trainer::close() {
  if (point_.epoch < config_.epochs) {
    display_.line("stopped after step " + std::to_string(point_.step));
  } else {
    if (!evaluation_) evaluation_ = evaluate(*model_, dataset_.val, config_.batch_size, group_);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    display_.line(format("validation accuracy %.4f (%lld of %lld), trained %lld examples in %.1f s",
                         evaluation_->accuracy(), static_cast<long long>(evaluation_->correct),
                         static_cast<long long>(evaluation_->count), static_cast<long long>(examples_seen_),
                         seconds));
  }
  if (!checkpoint_path_.empty()) display_.line("checkpoint " + checkpoint_path_);
  if (point_.epoch < config_.epochs || config_.weights_file.empty()) return;
  if (group_.rank() == 0) {
    const std::filesystem::path path = config_.weights_file;
    if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
    worker::write_safetensors(path, worker::state_dict(*model_));
  }
  display_.line("weights " + config_.weights_file);
}

double Trainer::learning_rate() const {
  return base_learning_rate(config_.optimizer) *
         learning_rate_factor(config_.schedule, point_.step, total_steps());
}

std::int64_t Trainer::total_steps() const {
  const std::int64_t batches = (sampler_.size() + config_.batch_size - 1) / config_.batch_size;
  return config_.epochs * ((batches + config_.accumulation_steps - 1) / config_.accumulation_steps);
}

}  // namespace cpprun::trainer
