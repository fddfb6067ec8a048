"""What happens to one resource: look up, create, wait, record; or look up, delete, until it is gone.

A process may die between any two of these lines and a reply may be lost after the platform acted on the call. So
nothing is created before looking, an intention is journaled before the create call is sent, and after every create
that did not clearly succeed the platform is asked again before another one is tried.
"""

from __future__ import annotations

from typing import TypeVar

from moorage.engine import context, errors, outputs, progress, resource, retry

Output = TypeVar("Output")

# "It exists already" and "there is no such thing" can both be said within the same breath by a platform whose lists
# lag behind; this is how long the second statement is doubted before the first is taken for someone else's thing.
DOUBT = 30.0


def bring_up(thing: resource.Resource[Output], inputs: outputs.Inputs, ctx: context.Context) -> outputs.Record:
    """Make sure the thing exists and is ready, and return its output as it will be journaled."""
    found = _look(thing, inputs, ctx)
    if found is None and ctx.intended:
        found = _look_again(thing, inputs, ctx, thing.settle)
    adopted = found is not None or _create(thing, inputs, ctx)
    if adopted:
        ctx.report(progress.Adopted)
    return outputs.plain(_wait(thing, inputs, ctx), thing.name)


def take_down(
    thing: resource.Resource[Output], inputs: outputs.Inputs, ctx: context.Context, *, patient: bool = True
) -> bool:
    """Make sure the thing is gone; False if there was nothing to remove.

    An impatient removal takes the platform's first "no" for an answer.
    """
    found = _look(thing, inputs, ctx)
    if found is None and ctx.intended:
        found = _look_again(thing, inputs, ctx, thing.settle)
    if found is None:
        return False
    ctx.report(progress.Deleting)
    _delete(thing, inputs, found, ctx, patient=patient)

    def gone() -> bool | None:
        return True if _seen(thing, inputs, ctx) is None else None

    ctx.poll(gone, what=f"{thing.describe} to be gone", every=thing.every)
    return True


def _wait(thing: resource.Resource[Output], inputs: outputs.Inputs, ctx: context.Context) -> Output:
    """Wait for the thing; on a lagging platform it may be "not found" for a while after it was made."""
    lag = ctx.deadline.within(thing.settle)

    def ready() -> Output:
        try:
            return thing.wait(inputs, ctx)
        except errors.NotFound as missing:
            if lag.expired:
                raise
            raise errors.Transient(missing.message, words=missing.words, retry_after=thing.every) from missing
        finally:
            ctx.fresh = False

    return ctx.retry(ready)


def _seen(thing: resource.Resource[Output], inputs: outputs.Inputs, ctx: context.Context) -> Output | None:
    try:
        return thing.lookup(inputs, ctx)
    except errors.NotFound:
        return None


def _look(thing: resource.Resource[Output], inputs: outputs.Inputs, ctx: context.Context) -> Output | None:
    return ctx.retry(lambda: _seen(thing, inputs, ctx))


def _look_again(
    thing: resource.Resource[Output], inputs: outputs.Inputs, ctx: context.Context, seconds: float
) -> Output | None:
    """Look until ``seconds`` are over; None if the thing still does not show."""
    limit = ctx.deadline.within(seconds)
    while True:
        found = _look(thing, inputs, ctx)
        if found is not None or limit.expired:
            return found
        ctx.clock.sleep(min(thing.every, limit.remaining()))


def _create(thing: resource.Resource[Output], inputs: outputs.Inputs, ctx: context.Context) -> bool:
    """Create the thing; True if in the end it was found rather than made by a call that succeeded."""
    tries = 0
    while True:
        tries += 1
        ctx.clock.check()
        ctx.report(progress.Creating)
        ctx.intended = True
        try:
            ident = thing.create(inputs, ctx)
        except errors.Conflict:
            if _look_again(thing, inputs, ctx, max(thing.settle, DOUBT)) is None:
                raise
            return True
        except (errors.Transient, errors.Ambiguous, TimeoutError, ConnectionError) as error:
            if _happened_after_all(thing, inputs, ctx, error, tries):
                return True
        else:
            ctx.created_id, ctx.fresh = ident or ctx.created_id, True
            ctx.report(progress.Created, id=ident or "")
            return False


def _happened_after_all(
    thing: resource.Resource[Output], inputs: outputs.Inputs, ctx: context.Context, error: Exception, tries: int
) -> bool:
    """Pause after a failed create, then see whether the thing is there nevertheless."""
    failure = retry.classify(error)
    if failure is None:
        raise error
    # A platform that clearly refused has nothing to show; one that fell silent may still be writing it down.
    if isinstance(failure, errors.Ambiguous) and _look_again(thing, inputs, ctx, thing.settle) is not None:
        return True
    retry.pause(failure, tries, deadline=ctx.deadline, backoff=ctx.backoff, on_retry=ctx.report_retry)
    return _look(thing, inputs, ctx) is not None


def _delete(
    thing: resource.Resource[Output],
    inputs: outputs.Inputs,
    found: Output,
    ctx: context.Context,
    *,
    patient: bool,
) -> None:
    def once() -> None:
        try:
            thing.delete(inputs, found, ctx)
        except errors.NotFound:
            return
        except errors.Conflict as conflict:
            # In use, most often by something whose removal has not quite ended.
            raise errors.Transient(conflict.message, words=conflict.words, remedy=conflict.remedy) from conflict

    if patient:
        ctx.retry(once)
    else:
        once()
