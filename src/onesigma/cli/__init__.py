"""The commands of ``onesigma``, one file each: ``add`` its parser, ``run`` it."""
