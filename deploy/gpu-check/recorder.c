/* A stand-in for NCCL Inspector: writes one line of JSON for each collective of this process, in the
 * form of Inspector's verbose mode (v4.0), for machines that have NCCL and no Inspector.
 *
 * It has neither Inspector's bandwidths and numbers of events nor its other output modes.
 *
 *   cc -O2 -fPIC -shared -pthread -o librecorder.so recorder.c
 *   NCCL_PROFILER_PLUGIN=/path/librecorder.so NCCL_INSPECTOR_DUMP_DIR=/path/folder
 *
 * NCCL 2.28 and later load it by the symbol ncclProfiler_v5. NCCL's threads only take times and hand
 * a finished collective to a queue; a thread of its own writes. The queue has a bound; what does not
 * fit is counted, and the count is said at the end. Collectives only, no sends and receives.
 *
 * The declarations below are the binary interface of NCCL's profiler plugins, version 5, as far as
 * it is used here.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- NCCL's interface ----------------------------------------------------------------------- */

enum { EVENT_COLL = 1 << 1, EVENT_KERNEL_CHANNEL = 1 << 6 };
enum { STATE_KERNEL_CHANNEL_STOP = 22 };

typedef struct {
  uint64_t type;
  void *parent;
  int rank;
  union {
    struct {
      uint64_t sequence;
      const char *function;
      const void *send_buffer;
      void *receive_buffer;
      size_t count;
      int root;
      const char *datatype;
      uint8_t channels;
      uint8_t warps;
      const char *algorithm;
      const char *protocol;
      void *parent_group;
    } coll;
    struct {
      uint8_t channel;
      uint64_t gpu_ns;
    } kernel;
  };
} Description;

typedef struct {
  uint64_t gpu_ns;
} StateArguments; /* of a kernel's channel; others are not looked at */

typedef int Result;  /* 0: success */

typedef struct {
  const char *name;
  Result (*init)(void **context, uint64_t communicator, int *mask, const char *name, int nodes,
                 int ranks, int rank, void *log);
  Result (*start)(void *context, void **handle, Description *description);
  Result (*stop)(void *handle);
  Result (*record)(void *handle, int state, StateArguments *arguments);
  Result (*finalize)(void *context);
} Profiler;

/* --- what is kept --------------------------------------------------------------------------- */

enum {
  CHANNELS_MAX = 64,    /* NCCL's own bound */
  OPEN_MAX = 4096,      /* collectives under way: NCCL launches some dozens ahead */
  QUEUE_MAX = 8192,     /* finished and not yet written: a second of 8,000 collectives */
  WRITE_EVERY_MS = 100, /* an agent reads once a second */
};

typedef struct {
  uint64_t id;
  int rank, ranks, nodes;
} Communicator;

struct Collective;

typedef struct {
  uint64_t type; /* first: a handle is told apart by it */
  struct Collective *collective;
  uint64_t start_us, stop_us, record_us, gpu_start_ns, gpu_stop_ns;
  bool is_used;
} Channel;

typedef struct Collective {
  uint64_t type; /* first */
  Communicator communicator;
  uint64_t sequence, start_us, stop_us, bytes;
  char function[24];
  int channels, started, stopped;
  bool is_enqueued;
  struct Collective *next;
  Channel channel[CHANNELS_MAX];
} Collective;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static Collective *queue_first, *queue_last;
static int queued, open_now, communicators;
static uint64_t left_out;
static pthread_t writer;
static bool is_writing, must_stop;
static FILE *file;
static char host[65];

static uint64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static size_t size_of(const char *datatype) {
  static const struct { const char *name; size_t bytes; } known[] = {
      {"ncclInt8", 1},    {"ncclUint8", 1},   {"ncclInt32", 4},        {"ncclUint32", 4},
      {"ncclInt64", 8},   {"ncclUint64", 8},  {"ncclFloat16", 2},      {"ncclFloat32", 4},
      {"ncclFloat64", 8}, {"ncclBfloat16", 2}, {"ncclFloat8e4m3", 1},  {"ncclFloat8e5m2", 1},
  };
  for (size_t i = 0; datatype && i < sizeof known / sizeof *known; i++)
    if (!strcmp(datatype, known[i].name)) return known[i].bytes;
  return 0;
}

/* --- writing -------------------------------------------------------------------------------- */

static void write_times(const Collective *one) {
  fprintf(file, "\"event_trace_ts\":{\"coll_start_ts\":%llu,\"coll_stop_ts\":%llu,\"kernel_events\":[",
          (unsigned long long)one->start_us, (unsigned long long)one->stop_us);
  const char *comma = "";
  for (int i = 0; i < CHANNELS_MAX; i++) {
    const Channel *channel = &one->channel[i];
    if (!channel->is_used) continue;
    fprintf(file, "%s{\"channel_id\":%d,\"kernel_start_ts\":%llu,\"kernel_stop_ts\":%llu,"
            "\"kernel_record_ts\":%llu}", comma, i, (unsigned long long)channel->start_us,
            (unsigned long long)channel->stop_us, (unsigned long long)channel->record_us);
    comma = ",";
  }
  fputs("]}", file);
}

static uint64_t longest_us(const Collective *one) {
  uint64_t longest = 0;
  for (int i = 0; i < CHANNELS_MAX; i++) {
    const Channel *channel = &one->channel[i];
    if (channel->is_used && channel->gpu_stop_ns > channel->gpu_start_ns) {
      uint64_t took = (channel->gpu_stop_ns - channel->gpu_start_ns) / 1000;
      if (took > longest) longest = took;
    }
  }
  return longest;
}

static void write_line(const Collective *one) {
  const Communicator *in = &one->communicator;
  uint64_t took = longest_us(one);
  fprintf(file, "{\"header\":{\"id\":\"0x%llx\",\"comm_name\":\"unknown\",\"rank\":%d,\"n_ranks\":%d,"
          "\"nnodes\":%d},", (unsigned long long)in->id, in->rank, in->ranks, in->nodes);
  fprintf(file, "\"metadata\":{\"inspector_output_format_version\":\"v4.0\","
          "\"git_rev\":\"fabricscope-recorder\",\"rec_mechanism\":\"nccl_profiler_interface\","
          "\"dump_timestamp_us\":%llu,\"hostname\":\"%s\",\"pid\":%d},",
          (unsigned long long)now_us(), host, (int)getpid());
  fprintf(file, "\"coll_perf\":{\"coll\":\"%s\",\"coll_sn\":%llu,\"coll_msg_size_bytes\":%llu,"
          "\"coll_exec_time_us\":%llu,\"coll_timing_source\":\"%s\",", one->function,
          (unsigned long long)one->sequence, (unsigned long long)one->bytes,
          (unsigned long long)took, took ? "kernel_gpu" : "unknown");
  write_times(one);
  fputs("}}\n", file);
}

static void *write_on(void *unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  for (;;) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WRITE_EVERY_MS * 1000000l;
    until.tv_sec += until.tv_nsec / 1000000000l;
    until.tv_nsec %= 1000000000l;
    if (!must_stop) pthread_cond_timedwait(&wake, &lock, &until);
    bool is_last = must_stop;
    Collective *first = queue_first;
    queue_first = queue_last = NULL;
    queued = 0;
    pthread_mutex_unlock(&lock);
    bool is_news = first != NULL;
    while (first) {
      Collective *next = first->next;
      write_line(first);
      free(first);
      first = next;
    }
    if (is_news) fflush(file);
    if (is_last) return NULL;
    pthread_mutex_lock(&lock);
  }
}

static bool open_file(void) {
  const char *folder = getenv("NCCL_INSPECTOR_DUMP_DIR");
  if (!folder || !*folder) return false;
  mkdir(folder, 0777);
  if (gethostname(host, sizeof host - 1)) strcpy(host, "unknown");
  for (char *one = host; *one; one++)
    if (*one == '"' || *one == '\\' || *one < ' ') *one = '_';
  char path[4096];
  snprintf(path, sizeof path, "%s/%s-pid%d.log", folder, host, (int)getpid());
  file = fopen(path, "a");
  if (!file) return false;
  setvbuf(file, NULL, _IOFBF, 1 << 20); /* so that a reader seldom sees half a line */
  return true;
}

/* --- called by NCCL ------------------------------------------------------------------------- */

static Result init(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks,
                   int rank, void *log) {
  (void)name, (void)log;
  *context = NULL;
  *mask = 0;
  pthread_mutex_lock(&lock);
  if (!file && !open_file()) {
    pthread_mutex_unlock(&lock);
    fprintf(stderr, "recorder: NCCL_INSPECTOR_DUMP_DIR is not set or cannot be written to\n");
    return 0;
  }
  if (!is_writing) {
    must_stop = false;
    is_writing = !pthread_create(&writer, NULL, write_on, NULL);
  }
  Communicator *made = calloc(1, sizeof *made);
  if (made && is_writing) {
    *made = (Communicator){id, rank, ranks, nodes};
    *context = made;
    *mask = EVENT_COLL | EVENT_KERNEL_CHANNEL;
    communicators++;
  } else {
    free(made);
  }
  pthread_mutex_unlock(&lock);
  return 0;
}

static Collective *begin(const Communicator *in, const Description *asked) {
  Collective *made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->type = EVENT_COLL;
  made->communicator = *in;
  made->sequence = asked->coll.sequence;
  made->bytes = size_of(asked->coll.datatype) * asked->coll.count;
  made->channels = asked->coll.channels;
  made->start_us = now_us();
  snprintf(made->function, sizeof made->function, "%s",
           asked->coll.function ? asked->coll.function : "Invalid");
  return made;
}

static Result start(void *context, void **handle, Description *asked) {
  *handle = NULL;
  if (!context || !asked) return 0;
  if (asked->type == EVENT_COLL) {
    /* One without channels has no kernel of its own whose end could be seen. */
    Collective *made = asked->coll.channels ? begin(context, asked) : NULL;
    pthread_mutex_lock(&lock);
    if (made && open_now < OPEN_MAX) {
      open_now++;
      *handle = made;
    } else {
      left_out++;
      free(made);
    }
    pthread_mutex_unlock(&lock);
  } else if (asked->type == EVENT_KERNEL_CHANNEL && asked->parent &&
             *(uint64_t *)asked->parent == EVENT_COLL && asked->kernel.channel < CHANNELS_MAX) {
    uint64_t start_us = now_us();
    Collective *parent = asked->parent;
    pthread_mutex_lock(&lock);
    Channel *channel = &parent->channel[asked->kernel.channel];
    *channel = (Channel){EVENT_KERNEL_CHANNEL, parent, start_us, 0, 0, asked->kernel.gpu_ns, 0, true};
    parent->started++;
    pthread_mutex_unlock(&lock);
    *handle = channel;
  }
  return 0;
}

/* Hands a collective to the writer once NCCL has enqueued it and all its channels have ended; NCCL
 * names it no more after that. Called with the lock held. */
static void hand_over(Collective *one) {
  if (!one->is_enqueued || one->stopped < one->channels || one->stopped < one->started) return;
  open_now--;
  if (!one->started || queued >= QUEUE_MAX) {
    left_out += one->started != 0;
    free(one);
    return;
  }
  if (queue_last) queue_last->next = one;
  else queue_first = one;
  queue_last = one;
  queued++;
}

static Result stop(void *handle) {
  if (!handle) return 0;
  uint64_t stop_us = now_us();
  pthread_mutex_lock(&lock);
  if (*(uint64_t *)handle == EVENT_COLL) {
    Collective *one = handle;
    one->stop_us = stop_us;
    one->is_enqueued = true;
    hand_over(one);
  } else {
    Channel *channel = handle;
    channel->stop_us = stop_us;
    channel->collective->stopped++;
    hand_over(channel->collective);
  }
  pthread_mutex_unlock(&lock);
  return 0;
}

static Result record(void *handle, int state, StateArguments *arguments) {
  if (!handle || !arguments || state != STATE_KERNEL_CHANNEL_STOP) return 0;
  Channel *channel = handle;
  if (channel->type != EVENT_KERNEL_CHANNEL) return 0;
  channel->record_us = now_us();
  channel->gpu_stop_ns = arguments->gpu_ns;
  return 0;
}

static Result finalize(void *context) {
  if (!context) return 0;
  free(context);
  pthread_mutex_lock(&lock);
  bool is_last = --communicators == 0 && is_writing;
  if (is_last) {
    must_stop = true;
    pthread_cond_signal(&wake);
  }
  pthread_mutex_unlock(&lock);
  if (!is_last) return 0;
  pthread_join(writer, NULL);
  is_writing = false;
  fclose(file);
  file = NULL;
  if (left_out) fprintf(stderr, "recorder: left out %llu collectives\n", (unsigned long long)left_out);
  return 0;
}

__attribute__((visibility("default"))) Profiler ncclProfiler_v5 = {
    "fabricscope-recorder", init, start, stop, record, finalize};
