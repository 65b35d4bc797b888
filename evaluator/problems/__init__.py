"""Problems: their files, importing foreign ones, and vetting whether the judge can tell right from wrong."""
