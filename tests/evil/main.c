/*
 * Runs the cases: evil source|sink|states-source|states-sink|rdma-source|rdma-sink|daemon
 *
 * Each is a process of its own with a world of its own, several at once; a line of TAP a case. Of the victim are
 * asserted: that it ends in time, its exit status, how many errors it tells and what of, that no control bytes are
 * in them, and what became of the files. RCP: the victim, RCP_HOOKS: it with test hooks, RCP_SOFT and RCP_SOFT_HOOKS:
 * the same on software verbs, EVIL_DIR: where to work.
 * EVIL_ONLY=TEXT: cases whose names hold it, EVIL_KEEP=1: leave their worlds.
 *
 * The same program is what a victim initiator starts in place of ssh: EVIL_CASE then says which case it is.
 */
#include "evil.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VICTIM_S 60 /* to its end, unless the case says more */

/* One case as it is run. */
struct job {
	const struct evil_case *c;
	char list; /* which table: see find_case; S: states */
	unsigned index;
	bool initiator, source;
	enum evil_as link;
	char name[200], top[512];
	pid_t pid;
	unsigned tries;
};

/* A job's exit status. */
enum { GOOD, BAD, VACUOUS };

static struct job *jobs;
static size_t job_count;
static const char *self;
static bool over_rdma; /* these cases alone, else none of them */

/* ---- the lists ---- */

static const struct evil_case *find_case(char list, bool source, bool initiator, unsigned index)
{
	if (list == 'S')
		return evil_state_case(source, initiator, index);
	const struct evil_case *c = list == 's'   ? evil_source_cases
				    : list == 'c' ? evil_chunk_cases
				    : list == 'k' ? evil_sink_cases
				    : list == 'l' ? evil_link_cases
#if RCP_HAVE_RDMA
				    : list == 'n' ? evil_nic_source_cases
				    : list == 'm' ? evil_nic_sink_cases
				    : list == 'o' ? evil_nic_link_cases
#endif
						  : evil_boot_cases;

	return &c[index];
}

static const char *link_name(enum evil_as link)
{
	static const struct {
		enum evil_as link;
		const char *name;
	} names[] = {{EVIL_PIPE, "pipe"}, {EVIL_TCP, "tcp"}, {EVIL_SEALED, "sealed"}, {EVIL_CM, "roce"},
		     {EVIL_CM_SEALED, "roce sealed"}, {EVIL_OOB, "ib"}, {EVIL_IWARP, "iwarp"},
		     {EVIL_OOB_SEALED, "ib sealed"}, {EVIL_IWARP_SEALED, "iwarp sealed"}};
	size_t i = 0;

	while (names[i].link != link)
		i++;
	return names[i].name;
}

static void job_add(const struct job *like)
{
	const char *only = getenv("EVIL_ONLY");
	struct job j = *like;

	snprintf(j.name, sizeof(j.name), "%s %s %s: %s", j.source ? "source" : "sink", j.initiator ? "against --server" : "in place of ssh",
		 link_name(j.link), j.c->name);
	if (only && !strstr(j.name, only))
		return;
	jobs = realloc(jobs, (job_count + 1) * sizeof(*jobs));
	if (!jobs)
		abort();
	jobs[job_count++] = j;
}

static void add_ways(struct job j)
{
	unsigned on = j.c->on;

	if (!(on & (EVIL_I | EVIL_R)))
		on |= EVIL_I | EVIL_R;
	if (!(on & EVIL_LINKS))
		on |= EVIL_PIPE;
	/* What the sessions say to each other has the same meaning over RDMA. */
	if (strchr("ck", j.list) && !(on & EVIL_NOT_RDMA))
		on |= (on & EVIL_TCP ? EVIL_CM | EVIL_IWARP : 0u) | (on & EVIL_SEALED ? EVIL_RDMA_SEALED : 0u);
	on &= over_rdma ? ~(unsigned)(EVIL_PIPE | EVIL_TCP | EVIL_SEALED) : ~(unsigned)EVIL_RDMA;
	for (unsigned link = EVIL_PIPE; link <= EVIL_LAST; link <<= 1) {
		j.link = (enum evil_as)link;
		j.initiator = true;
		if ((on & link) && (on & EVIL_I))
			job_add(&j);
		j.initiator = false;
		if ((on & link) && (on & EVIL_R))
			job_add(&j);
	}
}

static void add_list(char list, bool source)
{
	for (unsigned i = 0;; i++) {
		struct job j = {.list = list, .index = i, .source = source, .c = find_case(list, source, true, i)};

		if (!j.c || !j.c->name)
			return;
		add_ways(j);
	}
}

static void add_states(bool source)
{
	for (int initiator = 0; initiator < 2; initiator++) {
		for (unsigned i = 0;; i++) {
			struct job j = {.list = 'S', .index = i, .source = source, .initiator = initiator, .link = EVIL_PIPE};

			j.c = find_case('S', source, initiator, i);
			if (!j.c)
				break;
			struct evil_case *kept = malloc(sizeof(*kept));

			if (!kept)
				abort();
			*kept = *j.c;
			kept->name = strdup(j.c->name);
			j.c = kept;
			job_add(&j);
		}
	}
}

/* ---- the evil end ---- */

static void be_evil(struct evil *e)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/log/report", e->top);
	e->report = fopen(path, "a");
	e->until_ns = evil_now() + (e->c->arg2 > VICTIM_S ? (uint64_t)e->c->arg2 : VICTIM_S) * RCP_SEC;
	signal(SIGPIPE, SIG_IGN);
	evil_init(e);
	e->c->act(e);
	if (!e->acted)
		evil_note(e, "stopped at", e->step ? e->step : "its beginning");
	else if (e->pipe.rfd >= 0)
		evil_drain(e);
	/* Who hangs up on a victim that hangs has not seen it end. */
	if (evil_now() >= e->until_ns)
		evil_note(e, "late", "the victim would not end");
	evil_free(e);
	if (e->report)
		fclose(e->report);
}

/* In place of ssh. */
static int peer_main(const char *how)
{
	struct evil e = {.top = getenv("EVIL_TOP")};
	char list;
	int source;
	unsigned index, link;

	if (sscanf(how, "%c %d %u %u", &list, &source, &index, &link) != 4 || !e.top)
		return 2;
	e.source = source != 0;
	e.link = (enum evil_as)link;
	e.c = find_case(list, e.source, false, index);
	e.pipe = (struct evil_chan){.rfd = 0, .wfd = 1};
	fcntl(0, F_SETFL, O_NONBLOCK);
	fcntl(1, F_SETFL, O_NONBLOCK);
	be_evil(&e);
	fflush(NULL);
	_exit(0); /* what software verbs say of things left behind is not for this end */
}

/* ---- one case ---- */

static char *file_text(const char *top, const char *name)
{
	char path[600];
	static char none[1];

	snprintf(path, sizeof(path), "%s/log/%s", top, name);
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 1 << 20);

	if (!text)
		return none;
	if (f) {
		text[fread(text, 1, (1 << 20) - 1, f)] = 0;
		fclose(f);
	}
	return text;
}

/* Lines of errors; what only says how to go on is none. With `tag` the lines that begin so. */
static int count_words(const char *text, const char *tag)
{
	static const char go_on[] = "rcp: run the same command again to go on with what was kept\n";
	int n = 0;

	for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		size_t len = strcspn(at, "\n");

		if (tag ? strncmp(at, tag, strlen(tag)) == 0 : strncmp(at, go_on, len) != 0)
			n++;
	}
	return n;
}

static bool tame(const char *text, FILE *out)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if ((*p < 32 && *p != '\n' && *p != '\t') || *p == 127 || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)) {
			fprintf(out, "a control byte 0x%02x among its words\n", *p);
			return false;
		}
	}
	return true;
}

static int judge(const struct job *j, int status, const char *before, const char *target, FILE *out)
{
	char *err = file_text(j->top, "err"), *report = file_text(j->top, "report"), *said = file_text(j->top, "out");
	int words = count_words(err, NULL) + (j->initiator ? count_words(report, "word: ") : 0);
	bool own = j->c->lines == -2 && j->initiator; /* the evil end's own words: none for a server to repeat */
	int want = j->c->lines == -2 ? !own : j->c->lines ? j->c->lines : j->c->status != 0;

	if (j->c->lines == -3 || j->c->lines == -4)
		want = !j->initiator ? -2 - j->c->lines : words ? 1 : 0;
	bool good = tame(err, out);

	int wanted = j->c->status; /* negative: bits 1 << status of those that will do */

	if (wanted < 0 ? status > 30 || !(-wanted & 1 << status) : status != wanted)
		good = fprintf(out, "%s %d, not %d\n", status == 1000 ? "it did not end in time: status" : "exit status",
			       status, j->c->status) < 0;
	if (want >= 0 && words != want)
		good = fprintf(out, "%d words of errors, not %d\n", words, want) < 0;
	if (j->c->says && !own && !strstr(err, j->c->says) && !(j->initiator && strstr(report, j->c->says)))
		good = fprintf(out, "it does not say: %s\n", j->c->says) < 0;
	bool acted = strstr(report, "act: ") != NULL;

	if (!acted)
		good = fprintf(out, "the evil act was never reached\n") < 0;
	if (strstr(report, "late: "))
		good = fprintf(out, "it did not end by itself\n") < 0;
	if (strstr(report, "broken: "))
		good = fprintf(out, "the victim's own words were malformed\n") < 0;
	if (!j->initiator && said[0])
		good = fprintf(out, "standard output: %.200s\n", said) < 0;
	bool world = world_check(j->top, before, target, j->c->made, out);

	good &= world;
	if (!good || getenv("EVIL_SHOW"))
		fprintf(out, "stderr: %.3000s\nreport: %.3000s\n", err, report);
	free(err);
	free(report);
	free(said);
	return good ? GOOD : acted || !world ? BAD : VACUOUS;
}

static const char *program(const struct job *j)
{
	const char *rcp = getenv(j->link & EVIL_RDMA ? j->c->env ? "RCP_SOFT_HOOKS" : "RCP_SOFT"
				 : j->c->env	       ? "RCP_HOOKS"
						       : "RCP");

	return rcp ? rcp : "rcp";
}

static int run_server(struct job *j, struct victim *v, unsigned seconds)
{
	const char *argv[] = {program(j), "--server", NULL};
	struct evil e = {.c = j->c, .initiator = true, .source = j->source, .link = j->link, .top = j->top};
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
		return 999;
	v->argv = argv;
	v->in_fd = to[0];
	v->out_fd = from[1];
	if (!victim_start(v))
		return 999;
	close(to[0]);
	close(from[1]);
	fcntl(to[1], F_SETFL, O_NONBLOCK);
	fcntl(from[0], F_SETFL, O_NONBLOCK);
	e.pipe = (struct evil_chan){.rfd = from[0], .wfd = to[1]};
	be_evil(&e);
	return victim_wait(v, seconds);
}

struct words {
	const char *at[48];
	size_t count;
};

static void word(struct words *w, const char *text)
{
	w->at[w->count++] = text;
	w->at[w->count] = NULL;
}

static void option_words(const char *opts, struct words *w)
{
	for (; opts && *opts; opts++) {
		if (!strchr("d*nl", *opts)) /* START's alone; every way, not the case's; see below */
			word(w, *opts == 'r'   ? "-r"
				: *opts == 'a' ? "-a"
				: *opts == 'p' ? "-p"
				: *opts == 'v' ? "--verify"
					       : "--no-resume");
	}
}

/* n: the target is a new name, and there is one retry; l: a list of names. */
static bool has_opt(const struct job *j, char opt)
{
	return j->c->opts && strchr(j->c->opts, opt);
}

static void list_words(const struct job *j, struct words *w)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/log/list", j->top);
	FILE *f = fopen(path, "w");

	if (!f)
		abort();
	for (const char *at = j->c->want; *at; at++)
		fputc(*at == ' ' ? '\n' : *at, f);
	fclose(f);
	word(w, "--files-from=../../log/list");
	word(w, "box:.");
}

/* box:NAME where the victim is to fetch, ./src/NAME where it sends. */
static void source_words(const struct job *j, struct words *w)
{
	const char *want = j->c->want ? j->c->want : "f";

	if (has_opt(j, 'l')) {
		list_words(j, w);
		want = "";
	}
	while (*want) {
		size_t n = strcspn(want, " ");
		char *text;

		if (asprintf(&text, j->source ? "box:%.*s" : "../src/%.*s", (int)n, want) < 0)
			abort();
		word(w, text);
		want += n + strspn(want + n, " ");
	}
	word(w, !j->source ? "box:in" : has_opt(j, 'n') ? "../target/n" : "../target");
}

static int run_initiator(struct job *j, struct victim *v, unsigned seconds)
{
	struct words w = {0};
	char how[64];

	word(&w, program(j));
	word(&w, has_opt(j, 'n') ? "--retries=1" : "--retries=0");
	word(&w, has_opt(j, '*') ? "--transport=auto"
		 : j->link == EVIL_PIPE		     ? "--transport=ssh"
		 : j->link & EVIL_RDMA		     ? "--transport=rdma"
						     : "--transport=tcp");
	word(&w, j->link & EVIL_RDMA_SEALED				    ? "--encrypt=always"
		 : j->link == EVIL_PIPE || j->link == EVIL_SEALED ? "--encrypt=auto"
								    : "--encrypt=never");
	if (j->link & EVIL_ANY_OOB)
		word(&w, "--connect=oob");
	word(&w, "--chunk-size=64K");
	word(&w, "--slots=4");
	word(&w, "-S");
	word(&w, self);
	option_words(j->c->opts, &w);
	source_words(j, &w);
	snprintf(how, sizeof(how), "%c %d %u %u", j->list, j->source, j->index, (unsigned)j->link);
	setenv("EVIL_CASE", how, 1);
	setenv("EVIL_TOP", j->top, 1);
	v->argv = w.at;
	return victim_start(v) ? victim_wait(v, seconds) : 999;
}

/* Both ends' NICs, on a fabric of their own: RoCE v2 and v1 by turns. */
static void set_nics(const struct job *j)
{
	char fabric[40];

	snprintf(fabric, sizeof(fabric), "evil-%d", (int)getpid());
	setenv("RCP_FAKE", fabric, 1);
	setenv("RCP_FAKE_NICS", j->link & EVIL_ANY_OOB ? "ib rto=3000" : j->link & EVIL_ANY_IWARP ? "iwarp"
				: j->index % 2 ? "roce1 rto=3000" : "roce2 rto=3000", 1);
}

static int run_job(struct job *j)
{
	char cwd[600], err[600], out[600];
	struct victim v = {.cwd = cwd, .err = err, .out = out, .in_fd = -1, .out_fd = -1};
	unsigned seconds = j->c->arg2 > VICTIM_S ? (unsigned)j->c->arg2 : VICTIM_S;
	int status;

	snprintf(cwd, sizeof(cwd), "%s/w/home", j->top);
	snprintf(err, sizeof(err), "%s/log/err", j->top);
	snprintf(out, sizeof(out), "%s/log/out", j->top);
	world_make(j->top, j->c->want && strstr(j->c->want, "big"));
	setenv("HOME", cwd, 1);
	setenv("SSH_CONNECTION", "127.0.0.1 1 127.0.0.1 2", 1);
	if (j->link & EVIL_RDMA)
		set_nics(j);
	if (j->c->env)
		putenv((char *)(uintptr_t)j->c->env);
	/* Who gives up with a write that nobody takes leaves what belongs to it to the process's end. */
	if (j->c->env && getenv("EVIL_SANITIZED"))
		setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
	char *before = world_look(j->top, false), *target = world_look(j->top, true);

	status = j->initiator ? run_server(j, &v, seconds) : run_initiator(j, &v, seconds);
	snprintf(out, sizeof(out), "%s/verdict", j->top);
	FILE *f = fopen(out, "w");
	int verdict = f ? judge(j, status, before, target, f) : BAD;

	if (f && v.peak_kib > (j->c->most_kib ? j->c->most_kib : 600 << 10) && !getenv("EVIL_SANITIZED")) {
		fprintf(f, "it took %ld KiB of memory\n", v.peak_kib);
		verdict = BAD;
	}
	if (f)
		fclose(f);
	return verdict;
}

/* ---- all of them ---- */

static bool start_job(struct job *j, const char *dir)
{
	snprintf(j->top, sizeof(j->top), "%s/rcp-evil.XXXXXX", dir);
	if (!mkdtemp(j->top))
		return false;
	fflush(NULL);
	j->pid = fork();
	if (j->pid == 0)
		_exit(run_job(j));
	return j->pid > 0;
}

/* What was said of it, and whether its world may go. */
static void tell_verdict(struct job *j, bool good)
{
	char path[600], line[4096];

	snprintf(path, sizeof(path), "%s/verdict", j->top);
	FILE *f = fopen(path, "r");

	while (f && (!good || getenv("EVIL_SHOW")) && fgets(line, sizeof(line), f)) {
		for (char *p = line; *p; p++)
			*p = *p < 32 && *p != '\n' ? '?' : *p;
		printf("#   %s", line);
	}
	if (f)
		fclose(f);
	if (!getenv("EVIL_KEEP"))
		world_remove(j->top);
	else
		printf("#   world: %s\n", j->top);
}

static void tell(struct job *j, unsigned number, bool good)
{
	tell_verdict(j, good);
	if (!good)
		printf("#   again: EVIL_ONLY='%s'\n", j->name);
	printf("%s %u - %s\n", good ? "ok" : "not ok", number, j->name);
	fflush(stdout);
}

static struct job *job_of(pid_t pid)
{
	for (size_t i = 0; i < job_count; i++) {
		if (jobs[i].pid == pid)
			return &jobs[i];
	}
	return NULL;
}

/*
 * The victim gives each step of a connection a few seconds. On a machine that stands still for longer it hangs up on
 * an evil end that has done nothing yet: that case was not tried.
 */
static bool once_more(struct job *j, int status)
{
	if (!WIFEXITED(status) || WEXITSTATUS(status) != VACUOUS || j->tries++)
		return false;
	printf("# not tried, once more: %s\n", j->name);
	tell_verdict(j, false);
	return true;
}

static int run_all(const char *dir)
{
	const char *many = getenv("EVIL_JOBS");
	size_t most = many ? (size_t)atoi(many) : 12, next = 0, running = 0, bad = 0;
	unsigned number = 0;

	while (next < job_count || running) {
		while (next < job_count && running < most) {
			if (!start_job(&jobs[next++], dir))
				return printf("Bail out! no world in %s\n", dir), 1;
			running++;
		}
		int status;
		pid_t pid = wait(&status);
		struct job *j = pid > 0 ? job_of(pid) : NULL;

		if (!j)
			continue;
		j->pid = 0;
		running--;
		if (once_more(j, status)) {
			if (!start_job(j, dir))
				return printf("Bail out! no world in %s\n", dir), 1;
			running++;
			continue;
		}
		tell(j, ++number, status == 0);
		bad += status != 0;
	}
	printf("1..%u\n", number);
	return bad != 0;
}

int main(int argc, char **argv)
{
	const char *how = getenv("EVIL_CASE"), *dir = getenv("EVIL_DIR"), *list = argc > 1 ? argv[1] : "";
	static char whole[4096];

	if (how)
		return peer_main(how);
	self = realpath("/proc/self/exe", whole);
	dir = dir ? dir : "/tmp";
	if (!strcmp(list, "daemon"))
		return evil_daemon_main(getenv("RCP"), dir, getenv("EVIL_ONLY"));
	if (!strncmp(list, "rdma-", 5)) {
#if RCP_HAVE_RDMA
		bool source = !strcmp(list + 5, "source");

		over_rdma = true;
		add_list('o', source);
		add_list(source ? 'n' : 'm', source);
		add_list(source ? 'c' : 'k', source);
#endif
	} else if (!strcmp(list, "source") || !strcmp(list, "sink")) {
		add_list('b', !strcmp(list, "source"));
		add_list('l', !strcmp(list, "source"));
		add_list(list[1] == 'o' ? 's' : 'k', list[1] == 'o');
		if (list[1] == 'o')
			add_list('c', true);
	} else if (!strncmp(list, "states-", 7)) {
		add_states(!strcmp(list + 7, "source"));
	}
	if (!job_count) {
		fprintf(stderr, "usage: evil source|sink|states-source|states-sink|rdma-source|rdma-sink|daemon\n");
		return 2;
	}
	return run_all(dir);
}
