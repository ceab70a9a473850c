// The training loop: data-parallel training of a classifier with the config's model, optimizer and schedule,
// evaluation after each epoch, checkpoints, and resumption in the middle of an epoch.
//
// Order of one update (train_step), for a window of `accumulation_steps` batches, the last window of an epoch
// being shorter where they do not divide: forward and backward of summed losses, gradients reduced with the
// window's last batch only; one all-reduce of {examples, loss, wish to stop}; gradients scaled to the mean
// over all examples of all ranks; clipping; learning rate of the schedule; optimizer. What that all-reduce
// says is the same on every rank, so all of them skip or stop together.
//
// Checkpoints hold each rank's generator, so that a resumed run ends with the very
// weights of one that was never interrupted (on the CPU).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trainer/datasets/dataset.hpp"
#include "trainer/evaluation.hpp"
#include "trainer/metrics.hpp"
#include "trainer/progress.hpp"
#include "trainer/replica.hpp"
#include "trainer/resume_point.hpp"
#include "trainer/train_config.hpp"
#include "worker_runtime/data/distributed_sampler.hpp"

namespace cpprun::worker {
class ProcessGroup;
class TrainingCheckpoint;
}  // namespace cpprun::worker

namespace cpprun::trainer {

enum class Outcome {
  Finished,
  Stopped  // a signal reached some rank; where checkpoints are on, one was written after the last update
};

class Trainer {
 public:
  // Collective. Builds or resumes the run; `restarted` says that this is not the job's first start, so that a
  // finished checkpoint is this job's own. `group` must outlive the trainer. Throws worker::ConfigError for a
  // dataset with too few examples, and for checkpoints of another run or model.
  Trainer(const TrainConfig& config, Dataset dataset, const worker::ProcessGroup& group, bool restarted);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Collective. Runs the remaining epochs. Throws std::runtime_error on all ranks after ten updates in a row
  // without a finite loss (each is skipped by all ranks).
  Outcome train();

  // Collective. Writes the weights file of a finished run and says where things lie.
  void close();

  // This rank's replica, without its wrapper.
  Model& model() const { return replica_->model(); }

 private:
  struct Update {
    std::int64_t examples = 0;  // of all ranks
    double loss = 0;            // mean over them
    bool stop = false;
  };

  void begin_or_resume(bool restarted);
  void remove_checkpoints();
  bool train_epoch(const class StopSignal& stop);
  Update train_step(const worker::DataLoader& loader, bool stop_wanted);
  void evaluate_epoch();
  void save_checkpoint();
  void show(const Update& update, double learning_rate);
  double learning_rate() const;
  std::int64_t total_steps() const;

  TrainConfig config_;
  const worker::ProcessGroup& group_;
  Dataset dataset_;
  worker::DistributedSampler sampler_;
  ProgressDisplay display_;
  ResumePoint point_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<worker::TrainingCheckpoint> checkpoint_;  // null: the config asks for none
  std::unique_ptr<MetricsFile> metrics_;
  std::optional<Evaluation> evaluation_;  // of the weights as they are
  std::string checkpoint_path_;           // the newest, empty before the first
  int skipped_in_a_row_ = 0;
  std::int64_t examples_seen_ = 0;  // by all ranks since this process began to train
  std::chrono::steady_clock::time_point started_;
};

}  // namespace cpprun::trainer
