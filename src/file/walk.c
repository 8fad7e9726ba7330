#include "file/walk.h"

#include "file/io.h"
#include "file/walk_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int rcp_walk_new(const char *const *paths, const struct rcp_walk_options *options,
		 struct rcp_err *err, struct rcp_walk **out)
{
	struct rcp_walk *w = calloc(1, sizeof(*w));

	*out = NULL;
	if (!w)
		return rcp_io_fail(err, ENOMEM, "calloc", NULL);
	w->opt = *options;
	w->paths = paths;
	if (options->root && strlen(options->root) > RCP_WALK_PATH_MAX)
		rcp_io_fail(err, ENAMETOOLONG, "open", options->root);
	else
		rcp_excludes_new(options->excludes, err, &w->excludes);
	if (rcp_err_is(err))
		rcp_walk_free(&w);
	*out = w;
	return (int)err->code;
}

void rcp_walk_free(struct rcp_walk **walk)
{
	struct rcp_walk *w = *walk;

	if (!w)
		return;
	*walk = NULL;
	while (w->depth)
		rcp_walk_leave(w);
	if (w->globs)
		globfree(&w->globbed);
	rcp_excludes_free(&w->excludes);
	rcp_links_free(&w->links);
	rcp_walk_seen_free(w);
	free(w->stack);
	free(w->pair);
	free(w->xattrs);
	free(w);
}

/* The next name of the directory at hand, or its end. */
static int step_in_dir(struct rcp_walk *w, struct rcp_walk_item *item, struct rcp_err *err)
{
	const char *name;
	int rc = rcp_walk_name(w, &name, err);

	if (rc < 0)
		return -1;
	if (rc == 0) {
		rcp_walk_dir_item(w, RCP_ENTRY_DIR_END, item);
		rcp_walk_leave(w);
		return 1;
	}
	int fd = rcp_walk_fd(w, err);

	if (fd < 0)
		return -1;
	rcp_walk_rewind(w);
	if (rcp_walk_append(w, name))
		return rcp_walk_visit(w, fd, name, !w->opt.archive, item, err);
	rcp_err_set(err, RCP_E_PARTIAL, ENAMETOOLONG, "open", w->open,
		    "the path of what is in it is over %d bytes: %.100s", RCP_WALK_PATH_MAX, name);
	rcp_err_fix(err, "start the copy in a directory nearer to it");
	return -1;
}

int rcp_walk_next(struct rcp_walk *walk, struct rcp_walk_item *item, struct rcp_err *err,
		  enum rcp_severity *severity)
{
	bool end = false;
	int rc = 0;

	free(walk->xattrs);
	walk->xattrs = NULL;
	walk->warning = false;
	*item = (struct rcp_walk_item){0};
	if (rcp_err_is(&walk->later)) {
		*err = walk->later;
		walk->later = (struct rcp_err){0};
		*severity = RCP_SEVERITY_WARNING;
		return -1;
	}
	while (rc == 0 && !end) {
		if (walk->depth && !rcp_walk_top(walk)->implied)
			rc = step_in_dir(walk, item, err);
		else if (walk->opt.pairs)
			rc = rcp_walk_pair(walk, item, err, &end);
		else
			rc = rcp_walk_argument(walk, item, err, &end);
	}
	if (rc < 0)
		*severity = walk->warning ? RCP_SEVERITY_WARNING : RCP_SEVERITY_ERROR;
	return rc;
}
