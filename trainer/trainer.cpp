#include "trainer/trainer.hpp"

#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/nn/modules/container/sequential.h>

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
#include "worker_runtime/contract/cpprun_progress.hpp"
#include "worker_runtime/log.hpp"
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
  replica_ = std::make_unique<Replica>(config_, dataset_, group_);
  begin_or_resume(restarted);
  metrics_ =
      std::make_unique<MetricsFile>(group.rank() == 0 ? config.metrics_file : "", point_.step, point_.epoch);
}

Trainer::~Trainer() = default;

void Trainer::begin_or_resume(bool restarted) {
  const std::string& dir = config_.checkpoint.dir;
  if (dir.empty()) return;
  const progress::Section section("restore checkpoint");
  checkpoint_ = std::make_unique<worker::TrainingCheckpoint>(group_, dir, config_.checkpoint.keep);
  if (config_.checkpoint.resume == Resume::Never) return remove_checkpoints();

  const std::optional<worker::RestoredCheckpoint> found =
      checkpoint_->restore_latest({replica_->model(), replica_->optimizer()});
  if (!found) return;
  const ResumePoint saved = parse_resume_point(found->progress);
  const std::int64_t processes = point_.identity.processes;
  if (saved.epoch >= config_.epochs && !restarted) {
    display_.line("the run in " + dir + " is finished (" + std::to_string(saved.step) +
                  " steps): beginning anew");
    replica_ = std::make_unique<Replica>(config_, dataset_, group_);
    return remove_checkpoints();
  }
  if (const std::optional<std::string> difference = first_difference(saved.identity, point_.identity)) {
    throw worker::ConfigError(
        found->path.string() + " is of a run with " + *difference +
        ": choose another \"checkpoint.dir\", or set \"checkpoint.resume\" to \"never\"");
  }
  point_ = with_processes(saved, processes);
  checkpoint_path_ = found->path.string();
  display_.line("resumed from " + checkpoint_path_ +
                (saved.identity.processes == processes
                     ? ""
                     : ", which " + std::to_string(saved.identity.processes) + " processes wrote"));
}

void Trainer::remove_checkpoints() {
  if (group_.rank() == 0) {
    // The oldest first: were this interrupted, what is left is still the newest.
    std::vector<worker::CheckpointFolder> found = worker::list_checkpoints(config_.checkpoint.dir);
    std::reverse(found.begin(), found.end());
    for (const worker::CheckpointFolder& folder : found) std::filesystem::remove_all(folder.path);
  }
  worker::barrier(group_);
}

Outcome Trainer::train() {
  const StopSignal stop;
  started_ = std::chrono::steady_clock::now();
  while (point_.epoch < config_.epochs) {
    if (!train_epoch(stop)) return Outcome::Stopped;
    evaluate_epoch();
    ++point_.epoch;
    point_.used = 0;
    point_.batch = 0;
    if (config_.checkpoint.every_steps == 0 || point_.epoch == config_.epochs) save_checkpoint();
  }
  return Outcome::Finished;
}

// False where the ranks have agreed to stop.
bool Trainer::train_epoch(const StopSignal& stop) {
  const worker::DataLoader loader(dataset_.train, sampler_.indices(point_.epoch, point_.used),
                                  config_.batch_size);
  model().train();
  evaluation_.reset();
  const progress::PhaseScope training(progress::Phase::Training);
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
  replica_->begin_update();
  double loss = 0;
  std::int64_t count = 0;
  progress::section("forward and backward");
  for (std::int64_t number = point_.batch; number < end; ++number) {
    const worker::Batch batch = loader.batch(number);
    loss += replica_->add(batch, /*reduce=*/number + 1 == end);
    count += batch.targets.numel();
  }

  const at::Tensor totals = torch::tensor({static_cast<double>(count), loss, stop_wanted ? 1.0 : 0.0},
                                          at::TensorOptions(group_.device().device).dtype(torch::kFloat64));
  progress::section("all-reduce of the loss");
  worker::all_reduce(group_, totals);
  const at::Tensor sums = totals.cpu();
  const double examples = sums[0].item<double>();
  const Update update{.examples = static_cast<std::int64_t>(examples),
                      .loss = sums[1].item<double>() / examples,
                      .stop = sums[2].item<double>() > 0};

  progress::section("update");
  if (std::isfinite(update.loss)) {
    skipped_in_a_row_ = 0;
    // The reducer has averaged the ranks' summed gradients; what is wanted is their mean over the examples.
    replica_->finish_update(group_.world_size() / examples, config_.clip_norm, learning_rate());
  } else {
    if (++skipped_in_a_row_ == kNonFiniteLimit) {
      throw std::runtime_error("the loss was not a finite number in " + std::to_string(kNonFiniteLimit) +
                               " updates in a row, up to step " + std::to_string(point_.step + 1) +
                               ": lower \"optimizer.lr\" or set \"clip_norm\"");
    }
    replica_->abandon_update();
    if (group_.rank() == 0) {
      worker::log_warning("step " + std::to_string(point_.step + 1) +
                          ": the loss is not a finite number, the update is skipped");
    }
  }
  ++point_.step;
  ++point_.schedule_step;
  point_.batch = end;
  progress::section("");
  progress::step(point_.step);
  return update;
}

void Trainer::evaluate_epoch() {
  const progress::PhaseScope evaluating(progress::Phase::Evaluating);
  evaluation_ = evaluate(model(), dataset_.val, config_.batch_size, group_);
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
  const progress::PhaseScope checkpointing(progress::Phase::Checkpointing);
  checkpoint_path_ =
      checkpoint_->save(point_.step, {replica_->model(), replica_->optimizer()}, to_json(point_)).string();
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
  progress::phase(progress::Phase::Finishing);
  if (point_.epoch < config_.epochs) {
    display_.line("stopped after step " + std::to_string(point_.step));
  } else {
    if (!evaluation_) evaluation_ = evaluate(model(), dataset_.val, config_.batch_size, group_);
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
    worker::write_safetensors(path, worker::state_dict(model()));
  }
  display_.line("weights " + config_.weights_file);
}

double Trainer::learning_rate() const {
  const std::int64_t whole_run = config_.epochs * updates(point_.identity, dataset_.train.size());
  return base_learning_rate(config_.optimizer) *
         learning_rate_factor(config_.schedule, point_.schedule_step, whole_run);
}

std::int64_t Trainer::total_steps() const {
  const RunIdentity& run = point_.identity;
  const std::int64_t examples = dataset_.train.size();
  const std::int64_t of_epoch = updates(run, examples - point_.used);
  const std::int64_t done_of_epoch =
      (point_.batch + config_.accumulation_steps - 1) / config_.accumulation_steps;
  return point_.step + of_epoch - done_of_epoch +
         (config_.epochs - point_.epoch - 1) * updates(run, examples);
}

}  // namespace cpprun::trainer
